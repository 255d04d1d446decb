// Races, whose results may be right by luck in every order that was tried.
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

template <bool wrong>
__global__ void shuffle_as_fence(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];  // BUG shuffle_as_fence, write
  const float other = __shfl_xor_sync(0xffffffffu, m->in[me()], 1);
  if (!wrong) __syncwarp();
  m->out[me()] = row[me() ^ 1] + other;  // BUG shuffle_as_fence, read
}

/// A warp orders its own lanes only: half a mask orders half a warp.
template <bool wrong>
__global__ void half_syncwarp(Memory* m) {
  __shared__ float row[32];
  row[me()] = m->in[me()];  // BUG half_syncwarp, write
  __syncwarp(me() < 16 ? 0x0000ffffu : 0xffff0000u);
  m->out[me()] = row[me() ^ (wrong ? 16 : 8)];  // BUG half_syncwarp, read
}

template <bool wrong>
__global__ void missing_barrier(Memory* m) {
  const SharedMatrix<float> tile{dynamic_shared<float>(128), 2, 64, 64};
  tile(me() / 64, me() % 64) = m->in[me()];  // BUG missing_barrier, write
  if (!wrong) __syncthreads();
  m->out[me()] = tile(1 - me() / 64, 63 - me() % 64);  // BUG missing_barrier, read
}

template <bool wrong>
__global__ void ldmatrix_too_early(Memory* m) {
  unsigned* const words = dynamic_shared<unsigned>(32);
  words[me()] = __float_as_uint(m->in[me()]);  // BUG ldmatrix_too_early, write
  if (!wrong) __syncwarp();
  unsigned r[1];
  ldmatrix_x1_trans(r, words + me() % 8 * 4);  // BUG ldmatrix_too_early, read
  m->out[me()] = __uint_as_float(r[0]);
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
__global__ void in_turn(Memory* m) {
  wait_until_equal(&m->turn, block());
  m->out[block()] = m->in[block()];
  m->in[block() + 1] = 1.0f;
  add_release(&m->turn, 1);
}

/// One thread waits, one reads, one writes and one releases; barriers order them.
template <bool wrong>
__global__ void released_too_early(Memory* m) {
  if (me() == 0) wait_until_equal(&m->turn, block());
  __syncthreads();
  if (me() == 32) m->out[block()] = m->in[block()];  // BUG released_too_early, read
  if (me() == 63) m->in[block() + 1] = 1.0f;         // BUG released_too_early, write
  if (!wrong) __syncthreads();
  if (me() == 1) add_release(&m->turn, 1);
}

/// The store is ordered before lane 1's atomic, which does not order it before anyone else's.
template <bool wrong>
__global__ void store_then_other_atomic(Memory* m) {
  if (me() == 0) m->out[0] = 1.0f;  // BUG store_then_other_atomic, write
  if (me() < 2) __syncwarp(0x3u);
  if (wrong ? me() > 0 : me() == 1) atomicAdd(&m->out[0], m->in[me()]);  // BUG store_then_other_atomic, read
}

/// Blocks that follow each other on one operating-system thread use the same memory as their shared memory, in turn.
__global__ void shared_memory_of_many_blocks(Memory* m) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  atomicAdd(&sum, 1.0f);
  dynamic_shared<float>(128)[me()] = 1.0f;
  __syncthreads();
  if (threadIdx.x == 0) m->out[blockIdx.x] = sum;
}

/// Structures that calls take by value, straight from memory.
template <bool wrong>
__global__ void missing_syncwarp_pairs(Memory* m) {
  __shared__ __half2 row[32];
  row[me()] = __float2half2_rn(m->in[me()]);  // BUG missing_syncwarp_pairs, write
  if (!wrong) __syncwarp();
  m->out[me()] = __low2float(__hadd2(row[31 - me()], row[31 - me()]));  // BUG missing_syncwarp_pairs, read
}

struct Entry {
  const char* name;
  void (*wrong)(Memory*);  ///< null: there is none
  void (*right)(Memory*);
  unsigned blocks, threads;
};
#define BOTH(kernel) #kernel, kernel < true>, kernel < false>
const Entry entries[] = {
    {BOTH(missing_syncwarp_pairs), 1, 32},
    {BOTH(shuffle_as_fence), 1, 32},
    {BOTH(half_syncwarp), 1, 32},
    {BOTH(missing_barrier), 1, 128},
    {BOTH(ldmatrix_too_early), 1, 32},
    {"missing_release", missing_release, in_turn, 64, 1},
    {"missing_acquire", missing_acquire, in_turn, 64, 1},
    {BOTH(released_too_early), 64, 64},
    {BOTH(store_then_other_atomic), 1, 32},
    {"shared_memory_of_many_blocks", nullptr, shared_memory_of_many_blocks, 7, 128},
};
#undef BOTH

}  // namespace

std::vector<RaceCase> race_cases() {
  std::vector<RaceCase> cases;
  for (const Entry& each : entries) {
    if (each.wrong != nullptr) cases.push_back({each.name, true});
    cases.push_back({each.name, false});
  }
  return cases;
}

void run_race_case(const RaceCase& which) {
  set_options({.watch = true});
  const std::unique_ptr<Device> device = open_cpu();
  const Buffer buffer(*device, sizeof(Memory));
  Memory* const memory = new (buffer.data()) Memory;
  for (const Entry& each : entries) {
    if (each.name == which.name)
      launch(each.name, {dim3(each.blocks), dim3(each.threads), 20480}, which.is_bug ? each.wrong : each.right, memory);
  }
}

}  // namespace flash
