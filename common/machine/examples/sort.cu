// Bitonic sort: a block sorts 512 numbers in shared memory.
#include <algorithm>
#include <cstdio>

__global__ void sort(int* x) {
  __shared__ int s[512];
  const int t = threadIdx.x;
  s[t] = x[t];
  for (int size = 2; size <= 512; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();  // <- without this: race on s
      const int other = t ^ step;
      if (other < t || (s[t] > s[other]) != ((t & size) == 0)) continue;
      const int mine = s[t];
      s[t] = s[other];
      s[other] = mine;
    }
  __syncthreads();  // <- without this: race on s
  x[t] = s[t];
}

int main() {
  int *x, sorted[512];
  cudaMallocManaged(&x, sizeof sorted);
  for (int i = 0; i < 512; ++i) x[i] = sorted[i] = i * 7919 % 1009;
  sort<<<1, 512>>>(x);
  cudaDeviceSynchronize();
  std::sort(sorted, sorted + 512);
  const bool right = std::equal(sorted, sorted + 512, x);
  std::printf("%s\n", right ? "sorted" : "wrong");
  return right ? 0 : 1;
}
