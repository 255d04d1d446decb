// Compaction: a warp counts what it keeps by a ballot, and takes that many places with one atomic.
#include <cstdio>

__device__ int count;  // starts as 0

__global__ void compact(int n, const int* x, int* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  const bool keep = i < n && x[i] % 3 == 0;
  const unsigned mask = __ballot_sync(~0u, keep);
  int first = 0;
  if (lane == 0) first = atomicAdd(&count, __popc(mask));
  first = __shfl_sync(~0u, first, 0);  // <- without this: write_race on y
  const int place = first + __popc(mask & ((1u << lane) - 1));
  if (keep) y[place] = x[i];  // <- without this: write_race on y
}

int main() {
  const int n = 1000;
  int *x, *y, kept, sum = 0;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&y, n * sizeof(int));
  for (int i = 0; i < n; ++i) x[i] = i;
  compact<<<(n + 127) / 128, 128>>>(n, x, y);
  cudaMemcpyFromSymbol(&kept, count, sizeof(int));
  for (int i = 0; i < kept; ++i) sum += y[i];
  std::printf("%d kept, their sum is %d\n", kept, sum);
  return kept == 334 && sum == 3 * 333 * 334 / 2 ? 0 : 1;
}
