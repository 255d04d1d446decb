// The bugs that only ThreadSanitizer sees: their results may be right by luck, in every order that was tried. `zoo_race NAME` runs one
// kernel; zoo_race_test.cpp expects a report with both source lines of a bug, and silence about its twin.
#include "common/machine/test/zoo_race.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/cuda.cuh"
#include "common/machine/device.hpp"
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"

#include <memory>
#include <new>
#include <string>
#include <vector>

namespace flash {
namespace {

using Memory = RaceMemory;

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

__global__ void missing_syncwarp(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];        // BUG missing_syncwarp, write
  m->out[me()] = row[31 - me()];  // BUG missing_syncwarp, read
}
__global__ void missing_syncwarp_right(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];
  __syncwarp();
  m->out[me()] = row[31 - me()];
}

__global__ void shuffle_as_fence(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];  // BUG shuffle_as_fence, write
  const float other = __shfl_xor_sync(0xffffffffu, m->in[me()], 1);
  m->out[me()] = row[me() ^ 1] + other;  // BUG shuffle_as_fence, read
}
__global__ void shuffle_as_fence_right(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];
  const float other = __shfl_xor_sync(0xffffffffu, m->in[me()], 1);
  __syncwarp();
  m->out[me()] = row[me() ^ 1] + other;
}

/// A warp orders its own lanes only: half a mask orders half a warp.
__global__ void half_syncwarp(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];  // BUG half_syncwarp, write
  __syncwarp(me() < 16 ? 0x0000ffffu : 0xffff0000u);
  m->out[me()] = row[me() ^ 16];  // BUG half_syncwarp, read
}
__global__ void half_syncwarp_right(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];
  __syncwarp(me() < 16 ? 0x0000ffffu : 0xffff0000u);
  m->out[me()] = row[me() ^ 8];
}

__global__ void global_update(Memory* m) {
  m->out[0] += m->in[me()];  // BUG global_update, write
}
__global__ void global_update_right(Memory* m) { atomicAdd(&m->out[0], m->in[me()]); }

/// One thread in each of two blocks.
__global__ void between_blocks(Tensor<float> out) {
  out.head(0, 0)(0, 0) += 1.0f;  // BUG between_blocks, write
}
__global__ void between_blocks_right(Tensor<float> out) { atomicAdd(out.head(0, 0).address(0, 0), 1.0f); }

__global__ void missing_barrier(Memory* m) {
  const SharedMatrix<float> tile{dynamic_shared<float>(128), 2, 64, 64};
  tile(me() / 64, me() % 64) = m->in[me()];            // BUG missing_barrier, write
  m->out[me()] = tile(1 - me() / 64, 63 - me() % 64);  // BUG missing_barrier, read
}
__global__ void missing_barrier_right(Memory* m) {
  const SharedMatrix<float> tile{dynamic_shared<float>(128), 2, 64, 64};
  tile(me() / 64, me() % 64) = m->in[me()];
  __syncthreads();
  m->out[me()] = tile(1 - me() / 64, 63 - me() % 64);
}

__global__ void missing_second_barrier(Memory* m) {
  float* const tile = dynamic_shared<float>(128);
  for (int i = 0; i < 3; ++i) {
    tile[me()] = m->in[128 * i + me()];  // BUG missing_second_barrier, write
    __syncthreads();
    m->out[128 * i + me()] = tile[127 - me()];  // BUG missing_second_barrier, read
  }
}
__global__ void missing_second_barrier_right(Memory* m) {
  float* const tile = dynamic_shared<float>(128);
  for (int i = 0; i < 3; ++i) {
    tile[me()] = m->in[128 * i + me()];
    __syncthreads();
    m->out[128 * i + me()] = tile[127 - me()];
    __syncthreads();
  }
}

/// A thread's own wait says nothing about its neighbour's copy.
__global__ void copy_without_barrier(Memory* m) {
  float* const tile = dynamic_shared<float>(4 * 32);
  cp_async<16>(tile + 4 * me(), m->in + 4 * me());  // BUG copy_without_barrier, write
  cp_async_commit();
  cp_async_wait<0>();
  m->out[me()] = tile[4 * (31 - me())];  // BUG copy_without_barrier, read
}
__global__ void copy_without_barrier_right(Memory* m) {
  float* const tile = dynamic_shared<float>(4 * 32);
  cp_async<16>(tile + 4 * me(), m->in + 4 * me());
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  m->out[me()] = tile[4 * (31 - me())];
}

__global__ void ldmatrix_too_early(Memory* m) {
  unsigned* const words = dynamic_shared<unsigned>(32);
  words[me()] = __float_as_uint(m->in[me()]);  // BUG ldmatrix_too_early, write
  unsigned r[1];
  ldmatrix_x1_trans(r, words + me() % 8 * 4);  // BUG ldmatrix_too_early, read
  m->out[me()] = __uint_as_float(r[0]);
}
__global__ void ldmatrix_too_early_right(Memory* m) {
  unsigned* const words = dynamic_shared<unsigned>(32);
  words[me()] = __float_as_uint(m->in[me()]);
  __syncwarp();
  unsigned r[1];
  ldmatrix_x1_trans(r, words + me() % 8 * 4);
  m->out[me()] = __uint_as_float(r[0]);
}

/// Each block leaves a number; the block that comes last adds them up. An atomic alone orders nothing.
__global__ void last_block(Memory* m) {
  m->in[blockIdx.x] = 1.0f;  // BUG last_block, write
  if (atomicAdd(&m->arrived, 1u) == gridDim.x - 1) {
    for (unsigned i = 0; i < gridDim.x; ++i) m->out[0] += m->in[i];  // BUG last_block, read
  }
}
__global__ void last_block_right(Memory* m) {
  m->in[blockIdx.x] = 1.0f;
  __threadfence();
  if (atomicAdd(&m->arrived, 1u) == gridDim.x - 1) {
    __threadfence();
    for (unsigned i = 0; i < gridDim.x; ++i) m->out[0] += m->in[i];
  }
}

/// Each block reads what the one before it has written.
__device__ inline int block() { return static_cast<int>(blockIdx.x); }
__global__ void missing_release(Memory* m) {
  wait_until_equal(&m->turn, block());
  m->out[block()] = m->in[block()];  // BUG missing_release, read
  m->in[block() + 1] = 1.0f;         // BUG missing_release, write
  atomicAdd(&m->turn, 1);
}
__global__ void missing_acquire(Memory* m) {
  while (atomicAdd(&m->turn, 0) != block()) {
  }
  m->out[block()] = m->in[block()];  // BUG missing_acquire, read
  m->in[block() + 1] = 1.0f;         // BUG missing_acquire, write
  add_release(&m->turn, 1);
}
__global__ void in_turn_right(Memory* m) {
  wait_until_equal(&m->turn, block());
  m->out[block()] = m->in[block()];
  m->in[block() + 1] = 1.0f;
  add_release(&m->turn, 1);
}

/// One thread waits, one reads, one writes and one releases; barriers order them.
__global__ void released_too_early(Memory* m) {
  if (me() == 0) wait_until_equal(&m->turn, block());
  __syncthreads();
  if (me() == 32) m->out[block()] = m->in[block()];  // BUG released_too_early, read
  if (me() == 63) m->in[block() + 1] = 1.0f;         // BUG released_too_early, write
  if (me() == 1) add_release(&m->turn, 1);
}
__global__ void released_too_early_right(Memory* m) {
  if (me() == 0) wait_until_equal(&m->turn, block());
  __syncthreads();
  if (me() == 32) m->out[block()] = m->in[block()];
  if (me() == 63) m->in[block() + 1] = 1.0f;
  __syncthreads();
  if (me() == 1) add_release(&m->turn, 1);
}

/// The store is ordered before lane 1's atomic, which does not order it before anyone else's.
__global__ void store_then_other_atomic(Memory* m) {
  if (me() == 0) m->out[0] = 1.0f;  // BUG store_then_other_atomic, write
  if (me() < 2) __syncwarp(0x3u);
  if (me() > 0) atomicAdd(&m->out[0], m->in[me()]);  // BUG store_then_other_atomic, read
}
__global__ void store_then_other_atomic_right(Memory* m) {
  if (me() == 0) m->out[0] = 1.0f;
  if (me() < 2) __syncwarp(0x3u);
  if (me() == 1) atomicAdd(&m->out[0], m->in[me()]);
}

/// Blocks that follow each other on one operating-system thread use the same memory as their shared memory, in turn.
__global__ void shared_memory_of_many_blocks_right(Memory* m) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  atomicAdd(&sum, 1.0f);
  dynamic_shared<float>(128)[me()] = 1.0f;
  __syncthreads();
  if (threadIdx.x == 0) m->out[blockIdx.x] = sum;
}

/// Structures that calls take by value, straight from memory.
__global__ void missing_syncwarp_pairs(Memory* m) {
  __shared__ __half2 row[32];
  row[me()] = __float2half2_rn(m->in[me()]);                            // BUG missing_syncwarp_pairs, write
  m->out[me()] = __low2float(__hadd2(row[31 - me()], row[31 - me()]));  // BUG missing_syncwarp_pairs, read
}
__global__ void missing_syncwarp_pairs_right(Memory* m) {
  __shared__ __half2 row[32];
  row[me()] = __float2half2_rn(m->in[me()]);
  __syncwarp();
  m->out[me()] = __low2float(__hadd2(row[31 - me()], row[31 - me()]));
}

// Cases between blocks have many: of two, one may be through before the other one's operating-system thread has begun.
const RaceEntry common_entries[] = {
    {{"missing_syncwarp", true}, missing_syncwarp, 1, 32},
    {{"missing_syncwarp_right", false}, missing_syncwarp_right, 1, 32},
    {{"missing_syncwarp_pairs", true}, missing_syncwarp_pairs, 1, 32},
    {{"missing_syncwarp_pairs_right", false}, missing_syncwarp_pairs_right, 1, 32},
    {{"shuffle_as_fence", true}, shuffle_as_fence, 1, 32},
    {{"shuffle_as_fence_right", false}, shuffle_as_fence_right, 1, 32},
    {{"half_syncwarp", true}, half_syncwarp, 1, 32},
    {{"half_syncwarp_right", false}, half_syncwarp_right, 1, 32},
    {{"global_update", true}, global_update, 1, 32},
    {{"global_update_right", false}, global_update_right, 1, 32},
    {{"between_blocks", true}, nullptr, 64, 1},
    {{"between_blocks_right", false}, nullptr, 64, 1},
    {{"missing_barrier", true}, missing_barrier, 1, 128},
    {{"missing_barrier_right", false}, missing_barrier_right, 1, 128},
    {{"missing_second_barrier", true}, missing_second_barrier, 1, 128},
    {{"missing_second_barrier_right", false}, missing_second_barrier_right, 1, 128},
    {{"copy_without_barrier", true}, copy_without_barrier, 1, 32},
    {{"copy_without_barrier_right", false}, copy_without_barrier_right, 1, 32},
    {{"ldmatrix_too_early", true}, ldmatrix_too_early, 1, 32},
    {{"ldmatrix_too_early_right", false}, ldmatrix_too_early_right, 1, 32},
    {{"last_block", true}, last_block, 64, 1},
    {{"last_block_right", false}, last_block_right, 64, 1},
    {{"missing_release", true}, missing_release, 64, 1},
    {{"missing_acquire", true}, missing_acquire, 64, 1},
    {{"in_turn_right", false}, in_turn_right, 64, 1},
    {{"released_too_early", true}, released_too_early, 64, 64},
    {{"released_too_early_right", false}, released_too_early_right, 64, 64},
    {{"store_then_other_atomic", true}, store_then_other_atomic, 1, 32},
    {{"store_then_other_atomic_right", false}, store_then_other_atomic_right, 1, 32},
    {{"shared_memory_of_many_blocks_right", false}, shared_memory_of_many_blocks_right, 7, 128},
};

std::vector<RaceEntry> entries() {
  std::vector<RaceEntry> all(std::begin(common_entries), std::end(common_entries));
  for (const RaceEntry& entry : hopper_race_entries()) all.push_back(entry);
  return all;
}

}  // namespace

std::vector<RaceCase> race_cases() {
  std::vector<RaceCase> cases;
  for (const RaceEntry& entry : entries()) cases.push_back(entry.named);
  return cases;
}

bool run_race_case(const std::string& name, bool watch) {
  set_options({.os_threads = 2, .watch = watch});  // a race between blocks needs two
  const std::unique_ptr<Device> device = open_cpu();
  const Buffer buffer(*device, sizeof(Memory));
  Memory* const memory = new (buffer.data()) Memory;
  for (const RaceEntry& entry : entries()) {
    if (entry.named.name != name) continue;
    const LaunchShape shape{dim3(entry.blocks), dim3(entry.threads), 20480};
    const TensorRef out{memory->out, "out", Dtype::fp32, {1, 1, 1, 1}, {1, 1, 1, 1}};
    if (entry.kernel != nullptr) {
      launch(name.c_str(), shape, entry.kernel, memory);
    } else {
      launch(name.c_str(), shape, entry.named.is_bug ? between_blocks : between_blocks_right, view<float>(out));
    }
    return true;
  }
  return false;
}

}  // namespace flash
