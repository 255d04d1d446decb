// Double buffer by cp.async: tile k + 1 is on its way while tile k is added.
#include <cstdio>

constexpr int T = 128;

__device__ void load(int4* to, const int4* from) {
  const unsigned address = __cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));  // to buffer
}

__global__ void sum_of_tiles(int tiles, const int4* x, int* sums) {
  __shared__ int4 buffer[2][T];
  const int t = threadIdx.x, opposite = T - 1 - t;
  int sum = 0;
  load(&buffer[0][t], &x[t]);
  asm volatile("cp.async.commit_group;");
  for (int k = 0; k < tiles; ++k) {
    if (k + 1 < tiles) load(&buffer[(k + 1) % 2][t], &x[(k + 1) * T + t]);
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");  // <- without this: in_flight on buffer
    __syncthreads();                         // <- without this: race on buffer
    const int4 v = buffer[k % 2][opposite];
    sum += v.x + v.y + v.z + v.w;
    __syncthreads();  // <- without this: race on buffer
  }
  sums[opposite] = sum;
}

constexpr int tiles = 5;
__managed__ __align__(16) int x[tiles * T * 4], sums[T];

int main() {
  int expected[T] = {}, wrong = 0;
  for (int i = 0; i < tiles * T * 4; ++i) expected[i / 4 % T] += x[i] = i % 9;
  sum_of_tiles<<<1, T>>>(tiles, reinterpret_cast<int4*>(x), sums);
  cudaDeviceSynchronize();
  for (int t = 0; t < T; ++t) wrong += sums[t] != expected[t];
  std::printf("%d sums are wrong\n", wrong);
  return wrong > 0;
}
