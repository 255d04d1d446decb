// Scan: a block scans in dynamic shared memory; a second launch scans the sums of the blocks.
#include <cstdio>

__global__ void scan(int n, const int* x, int* y, int* totals) {
  extern __shared__ int sums[];
  const int t = threadIdx.x, threads = blockDim.x, i = blockIdx.x * threads + t;
  sums[t] = i < n ? x[i] : 0;
  for (int step = 1; step < threads; step *= 2) {
    __syncthreads();  // <- without this: race on sums
    const int left = t >= step ? sums[t - step] : 0;
    __syncthreads();  // <- without this: race on sums
    sums[t] += left;
  }
  if (totals != nullptr && t == threads - 1) totals[blockIdx.x] = sums[t];
  if (i < n) y[i] = sums[t];
}

__global__ void add(int n, const int* totals, int* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;  // <- without this: out_of_bounds on y
  if (blockIdx.x > 0) y[i] += totals[blockIdx.x - 1];
}

int main() {
  const int n = 1000, threads = 128, blocks = (n + threads - 1) / threads;
  int *x, *y, *totals, wrong = 0;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&y, n * sizeof(int));
  cudaMallocManaged(&totals, blocks * sizeof(int));
  for (int i = 0; i < n; ++i) x[i] = i % 5;
  scan<<<blocks, threads, threads * sizeof(int)>>>(n, x, y, totals);
  scan<<<1, 32, 32 * sizeof(int)>>>(blocks, totals, totals, nullptr);
  add<<<blocks, threads>>>(n, totals, y);
  cudaDeviceSynchronize();
  for (int i = 0, sum = 0; i < n; ++i) wrong += y[i] != (sum += x[i]);
  std::printf("%d of %d sums are wrong\n", wrong, n);
  return wrong > 0;
}
