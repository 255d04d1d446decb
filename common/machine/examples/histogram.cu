// Histogram: a block counts in shared memory by atomics, then adds its counts to the grid's.
#include <cstdio>

__global__ void histogram(int n, const unsigned char* x, unsigned* counts) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();  // <- without this: write_race on local
  const int first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  for (int i = first; i < n; i += threads) atomicAdd(&local[x[i]], 1u);
  __syncthreads();  // <- without this: race on local
  atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

constexpr int n = 20000;
__managed__ unsigned char x[n];
__managed__ unsigned counts[256];

int main() {
  unsigned expected[256] = {}, wrong = 0;
  for (int i = 0; i < n; ++i) ++expected[x[i] = i * i % 251];
  histogram<<<4, 256>>>(n, x, counts);
  cudaDeviceSynchronize();
  for (int i = 0; i < 256; ++i) wrong += counts[i] != expected[i];
  std::printf("%u of 256 counts are wrong\n", wrong);
  return wrong > 0;
}
