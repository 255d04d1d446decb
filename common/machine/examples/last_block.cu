// Reduction in one launch: the block that takes the last ticket adds the sums of all blocks.
#include <cstdio>

__device__ unsigned tickets;

__global__ void sum(int n, const float* x, volatile float* sums, float* total) {
  __shared__ float partial[128];
  __shared__ bool last;
  const int t = threadIdx.x, i = blockIdx.x * 128 + t;
  partial[t] = i < n ? x[i] : 0;
  for (int half = 64; half > 0; half /= 2) {
    __syncthreads();  // <- without this: race on partial
    if (t < half) partial[t] += partial[t + half];
  }
  if (t == 0) {
    sums[blockIdx.x] = partial[0];
    __threadfence();  // <- without this: race on sums
    last = atomicAdd(&tickets, 1) == gridDim.x - 1;
  }
  __syncthreads();  // <- without this: race on last
  if (!last || t > 0) return;
  __threadfence();
  float result = 0;
  for (int block = 0; block < int(gridDim.x); ++block) result += sums[block];
  *total = result;
}

constexpr int n = 2000, blocks = (n + 127) / 128;
__managed__ float x[n], sums[blocks], total;

int main() {
  float expected = 0;
  for (int i = 0; i < n; ++i) expected += x[i] = i % 7;
  sum<<<blocks, 128>>>(n, x, sums, &total);
  cudaDeviceSynchronize();
  std::printf("sum %g, expected %g\n", total, expected);
  return total == expected ? 0 : 1;
}
