// Batched matrix-vector product: a block per matrix, a warp per row, the vector in shared memory.
#include <cstdio>

__global__ void matvec(int rows, int cols, const float* A, const float* x, float* y) {
  extern __shared__ float vector[];
  A += blockIdx.x * rows * cols, x += blockIdx.x * cols, y += blockIdx.x * rows;
  for (int j = threadIdx.x; j < cols; j += blockDim.x) vector[j] = x[j];
  __syncthreads();  // <- without this: race on vector
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int i = warp; i < rows; i += warps) {
    float sum = 0;
    for (int j = lane; j < cols; j += 32) sum += A[i * cols + j] * vector[j];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) y[i] = sum;  // <- without this: write_race on y
  }
}

constexpr int batch = 3, rows = 20, cols = 100;
__managed__ float A[batch * rows * cols], x[batch * cols], y[batch * rows];

int main() {
  float expected[batch * rows] = {};
  for (int i = 0; i < batch * cols; ++i) x[i] = i % 5;
  for (int i = 0; i < batch * rows * cols; ++i) {
    A[i] = i % 7;
    expected[i / cols] += A[i] * x[i / (rows * cols) * cols + i % cols];
  }
  matvec<<<batch, 128, cols * sizeof(float)>>>(rows, cols, A, x, y);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < batch * rows; ++i) wrong += y[i] != expected[i];
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
