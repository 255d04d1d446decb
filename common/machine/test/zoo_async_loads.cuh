// Loads by the TMA: when they are read, what overwrites them, which mbarrier counts them.
#pragma once

#include "common/machine/test/zoo_async.cuh"

namespace flash {
namespace {

enum class Load { right, read_early, other_mbarrier, another_warp, over_load, over_stores_unfenced };

/// Two loads, two mbarriers: each warp reads the one that it has waited for. Threads have cleared the slots, and the async proxy may write first.
template <Load mistake>
__global__ void two_loads(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  shared.slot(warp())[lane()] = 0;
  if (mistake != Load::over_stores_unfenced) fence_proxy_async();
  __syncthreads();
  for (int i = 0; i < 2 && me() == 0; ++i) {
    unsigned* const to = shared.slot(mistake == Load::over_load ? 0 : i);
    mbarrier_arrive_expect_tx(shared.barrier(i), slot_bytes);
    tma_load(to, map, shared.barrier(i), 0, 8 * i, 0, 0);  // BUG load_over_load | load_over_stores_unfenced
  }
  const int awaited = mistake == Load::other_mbarrier ? 1 : warp();
  if (mistake != Load::read_early) mbarrier_wait(shared.barrier(awaited), 0);
  const unsigned* const slot = shared.slot(mistake == Load::right ? warp() : 0);
  m->out[me()] = slot[lane()];  // BUG load_read_early | other_mbarrier_awaited | load_awaited_by_another_warp
  mbarrier_wait(shared.barrier(1 - awaited), 0);
}

/// Two loads for one phase, which expects so many bytes.
template <int expected>
__global__ void both_loads(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), expected);
    for (int i = 0; i < 2; ++i) tma_load(shared.slot(i), map, shared.barrier(0), 0, 8 * i, 0, 0);  // BUG too_few_bytes
  }
  mbarrier_wait(shared.barrier(0), 0);  // BUG too_many_bytes
  m->out[me()] = shared.slot(1)[me()];
}

/// The second wait still has the parity of the first phase, which is over.
template <bool wrong>
__global__ void parity_not_flipped(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  for (int i = 0; i < 2; ++i) {
    if (me() == 0) {
      mbarrier_arrive_expect_tx(shared.barrier(0), slot_bytes);
      tma_load(shared.slot(0), map, shared.barrier(0), 0, 8 * i, 0, 0);
    }
    mbarrier_wait(shared.barrier(0), wrong ? 0 : i);  // BUG parity_not_flipped
    m->out[64 * i + me()] = shared.slot(0)[me()];
    __syncthreads();
  }
}

template <bool wrong>
__global__ void mbarrier_unfenced_for_the_tma(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 1);
    if (!wrong) fence_mbarrier_init();
    mbarrier_arrive_expect_tx(shared.barrier(0), slot_bytes);
    tma_load(shared.slot(0), map, shared.barrier(0), 0, 0, 0, 0);  // BUG mbarrier_unfenced_for_the_tma
  }
  if (wrong) fence_mbarrier_init();
  __syncthreads();
  mbarrier_wait(shared.barrier(0), 0);
  m->out[me()] = shared.slot(0)[me()];
}

// ---- two buffers in one arena --------------------------------------------------------------------------------------------------------

/// Warp 0 fills its buffer, warp 1 reads its own, which begins too early.
template <bool wrong>
__global__ void buffers_overlap(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  unsigned* const first = shared.slot(0);
  unsigned* const second = first + (wrong ? 31 : 32);
  if (warp() == 1) second[lane()] = m->in[lane()];
  __syncthreads();
  if (warp() == 0) {
    first[lane()] = m->in[64 + lane()];
  } else {
    m->out[lane()] = second[lane()];  // BUG buffers_overlap
  }
}

/// The box ends where the next buffer, still in use, has begun.
template <bool wrong>
__global__ void load_into_next_buffer(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared);
  unsigned* const next = shared.slot(1);
  if (warp() == 1) {
    next[lane()] = m->in[lane()];
    fence_proxy_async();
    __syncwarp();
    m->out[lane()] = next[31 - lane()];
  } else if (lane() == 0) {
    const int bytes = wrong ? slot_bytes + 16 : slot_bytes;
    mbarrier_arrive_expect_tx(shared.barrier(0), bytes);
    bulk_load(shared.slot(0), m->in, bytes, shared.barrier(0));  // BUG load_into_next_buffer
    mbarrier_wait(shared.barrier(0), 0);
  }
}

/// One word beyond the last slot lies an mbarrier.
template <bool wrong>
__global__ void mbarrier_overwritten(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 64);
  for (int i = 0; i < 4; ++i) shared.slot(Shared::slots - 1)[64 * i + me() + (wrong ? 1 : 0)] = 0;
  __syncthreads();
  mbarrier_arrive(shared.barrier(0));  // BUG mbarrier_overwritten
  mbarrier_wait(shared.barrier(0), 0);
  m->out[me()] = shared.slot(Shared::slots - 1)[me() + 1];
}

std::vector<AsyncCase> load_cases() {
  const char* const not_landed = " has landed";
#define LOAD(name, mistake, says) ASYNC_CASE(name, two_loads, Load::mistake, Load::right, 64, says)
#define BYTES(name, bytes, says) ASYNC_CASE(name, both_loads, bytes, 2 * slot_bytes, 64, says)
  return {
      LOAD("load_read_early", read_early, not_landed),
      LOAD("other_mbarrier_awaited", other_mbarrier, not_landed),
      LOAD("load_awaited_by_another_warp", another_warp, "has not waited for its mbarrier"),
      LOAD("load_over_load", over_load, "the load overwrites"),
      LOAD("load_over_stores_unfenced", over_stores_unfenced, "without fence_proxy_async()"),
      BYTES("too_few_bytes", slot_bytes, not_landed),
      BYTES("too_many_bytes", 2 * slot_bytes + 16, "lacks 16 bytes"),
      ASYNC_TWINS(parity_not_flipped, 64, "wrong parity"),
      ASYNC_TWINS(mbarrier_unfenced_for_the_tma, 64, "first fence_mbarrier_init()"),
      ASYNC_TWINS(buffers_overlap, 64, "the same shared memory"),
      ASYNC_TWINS(load_into_next_buffer, 64, "the same shared memory"),
      ASYNC_TWINS(mbarrier_overwritten, 64, "was overwritten"),
  };
#undef LOAD
#undef BYTES
}

}  // namespace
}  // namespace flash
