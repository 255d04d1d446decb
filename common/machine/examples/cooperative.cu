// Cooperative groups: tiles of 16 threads reduce, and one thread of each adds to the block's sum.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>

namespace cg = cooperative_groups;

__global__ void sum_of_blocks(const int* x, int* sums) {
  __shared__ int total;
  const cg::thread_block block = cg::this_thread_block();
  const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
  if (block.thread_rank() == 0) total = 0;
  block.sync();  // <- without this: write_race on total
  const int i = blockIdx.x * block.size() + block.thread_rank();
  const int sum = cg::reduce(tile, x[i], cg::plus<int>());
  if (tile.thread_rank() == 0) atomicAdd(&total, sum);
  block.sync();  // <- without this: race on total
  if (block.thread_rank() == 0) sums[blockIdx.x] = total;
}

constexpr int blocks = 4, threads = 192;
__managed__ int x[blocks * threads], sums[blocks];

int main() {
  int expected[blocks] = {}, wrong = 0;
  for (int i = 0; i < blocks * threads; ++i) expected[i / threads] += x[i] = i % 10;
  sum_of_blocks<<<blocks, threads>>>(x, sums);
  cudaDeviceSynchronize();
  for (int i = 0; i < blocks; ++i) wrong += sums[i] != expected[i];
  std::printf("%d sums are wrong\n", wrong);
  return wrong > 0;
}
