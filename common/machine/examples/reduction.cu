// Reduction: a warp adds by shuffles, a block through shared memory, the grid by an atomic.
#include <cstdio>

__global__ void sum(int n, const float* x, float* total) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float mine = i < n ? x[i] : 0;
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
  if (lane == 0) partial[warp] = mine;
  __syncthreads();  // <- without this: race on partial
  if (warp > 0) return;
  mine = lane < warps ? partial[lane] : 0;
  for (int step = 16; step > 0; step /= 2) mine += __shfl_down_sync(~0u, mine, step);
  if (lane == 0) atomicAdd(total, mine);
}

int main() {
  const int n = 1000;
  float *x, *total, expected = 0;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMalloc(&total, sizeof(float));
  for (int i = 0; i < n; ++i) expected += x[i] = i % 7;
  cudaMemset(total, 0, sizeof(float));
  sum<<<(n + 255) / 256, 256>>>(n, x, total);
  float result;
  cudaMemcpy(&result, total, sizeof(float), cudaMemcpyDeviceToHost);
  std::printf("sum %g, expected %g\n", result, expected);
  return result == expected ? 0 : 1;
}
