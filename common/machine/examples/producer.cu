// Producer and consumer: one warp fills two buffers, another empties them, by cuda::barrier.
#include <cstdio>
#include <cuda/barrier>

using barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void square(int tiles, const int* x, int* y) {
  __shared__ int buffer[2][32];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier full[2], empty[2];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 2) {
    init(&full[threadIdx.x], 64);
    init(&empty[threadIdx.x], 64);
  }
  __syncthreads();  // <- without this: mbarrier on empty
  // Both start as empty.
  if (threadIdx.x >= 32) (void)empty[0].arrive(), (void)empty[1].arrive();
  for (int k = 0; k < tiles; ++k) {
    int* const tile = buffer[k % 2];
    if (threadIdx.x < 32) {
      empty[k % 2].arrive_and_wait();  // <- without this: deadlock on full
      tile[lane] = x[k * 32 + lane];
      (void)full[k % 2].arrive();
    } else {
      full[k % 2].arrive_and_wait();  // <- without this: race on tile
      y[k * 32 + lane] = tile[31 - lane] * tile[31 - lane];
      (void)empty[k % 2].arrive();
    }
  }
}

constexpr int tiles = 6;
__managed__ int x[tiles * 32], y[tiles * 32];

int main() {
  for (int i = 0; i < tiles * 32; ++i) x[i] = i;
  square<<<1, 64>>>(tiles, x, y);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < tiles * 32; ++i) wrong += y[i] != (i ^ 31) * (i ^ 31);
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
