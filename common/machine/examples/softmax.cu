// Softmax: a block per row, which reduces twice in the same shared memory.
#include <cmath>
#include <cstdio>

__device__ float reduce(float value, bool largest) {
  __shared__ float buffer[128];
  const int t = threadIdx.x;
  buffer[t] = value;
  for (int half = 64; half > 0; half /= 2) {
    __syncthreads();  // <- without this: race on buffer
    if (t >= half) continue;
    const float a = buffer[t], b = buffer[t + half];
    buffer[t] = largest ? fmaxf(a, b) : a + b;
  }
  __syncthreads();  // <- without this: race on buffer
  value = buffer[0];
  __syncthreads();  // <- without this: race on buffer
  return value;
}

__global__ void softmax(int cols, float* x) {
  float* row = x + blockIdx.x * cols;
  float m = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < cols; i += 128) m = fmaxf(m, row[i]);
  m = reduce(m, true);
  for (int i = threadIdx.x; i < cols; i += 128) sum += row[i] = expf(row[i] - m);
  sum = reduce(sum, false);
  for (int i = threadIdx.x; i < cols; i += 128) row[i] /= sum;
}

constexpr int rows = 8, cols = 300;
__managed__ float x[rows * cols];

int main() {
  double power[rows * cols], sum[rows] = {};
  for (int i = 0; i < rows * cols; ++i) {
    x[i] = i % 11 * 20;  // e^200 overflows in float
    sum[i / cols] += power[i] = std::exp(double(x[i]));
  }
  softmax<<<rows, 128>>>(cols, x);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < rows * cols; ++i) wrong += !(fabs(x[i] - power[i] / sum[i / cols]) < 1e-6);
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
