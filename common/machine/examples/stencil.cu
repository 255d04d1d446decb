// 1D stencil: the mean of 7 neighbours, from a tile with a halo in shared memory.
#include <cstdio>

constexpr int T = 128, R = 3;

__global__ void smooth(int n, const float* in, float* out) {
  __shared__ float tile[T + 2 * R];
  const int i = blockIdx.x * T + threadIdx.x, t = threadIdx.x + R;
  tile[t] = i < n ? in[i] : 0;
  if (threadIdx.x < R) {
    tile[t - R] = i >= R ? in[i - R] : 0;
    tile[t + T] = i + T < n ? in[i + T] : 0;
  }
  __syncthreads();  // <- without this: race on tile
  float sum = 0;
  for (int k = -R; k <= R; ++k) sum += tile[t + k];
  if (i < n) out[i] = sum / (2 * R + 1);  // <- without this: out_of_bounds on out
}

int main() {
  const int n = 1000;
  float *in, *out;
  cudaMallocManaged(&in, n * sizeof(float));
  cudaMallocManaged(&out, n * sizeof(float));
  for (int i = 0; i < n; ++i) in[i] = i * i;
  smooth<<<(n + T - 1) / T, T>>>(n, in, out);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = R; i < n - R; ++i) wrong += out[i] != i * i + 4;  // (9 + 4 + 1) * 2 / 7
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
