// Loads by the TMA: when they are read, what overwrites them, which mbarrier counts them.
#pragma once

#include "common/machine/test/zoo_async.cuh"

namespace flash {
namespace {

template <bool wrong>
__global__ void load_read_early(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), slot_bytes);
    tma_load(shared.slot(0), map, shared.barrier(0), 0, 0, 0, 0);
  }
  if (!wrong) mbarrier_wait(shared.barrier(0), 0);
  m->out[me()] = shared.slot(0)[me()];  // BUG load_read_early
  if (wrong) mbarrier_wait(shared.barrier(0), 0);
}

/// Two loads, two mbarriers; the wait for one says nothing about the other.
template <bool wrong>
__global__ void other_mbarrier_awaited(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) {
      mbarrier_arrive_expect_tx(shared.barrier(i), slot_bytes);
      tma_load(shared.slot(i), map, shared.barrier(i), 0, 8 * i, 0, 0);
    }
  }
  mbarrier_wait(shared.barrier(1), 0);
  m->out[me()] = shared.slot(wrong ? 0 : 1)[me()];  // BUG other_mbarrier_awaited
  mbarrier_wait(shared.barrier(0), 0);
}

/// Each warp waits for one load; warp 1 reads the tile that warp 0 has waited for.
template <bool wrong>
__global__ void load_awaited_by_another_warp(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) {
      mbarrier_arrive_expect_tx(shared.barrier(i), slot_bytes);
      tma_load(shared.slot(i), map, shared.barrier(i), 0, 8 * i, 0, 0);
    }
  }
  mbarrier_wait(shared.barrier(warp()), 0);
  m->out[me()] = shared.slot(wrong ? 0 : warp())[lane()];  // BUG load_awaited_by_another_warp
}

/// Two loads for one phase, which expects the bytes of one of them.
template <bool wrong>
__global__ void too_few_bytes(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), wrong ? slot_bytes : 2 * slot_bytes);
    for (int i = 0; i < 2; ++i) tma_load(shared.slot(i), map, shared.barrier(0), 0, 8 * i, 0, 0);  // BUG too_few_bytes
  }
  mbarrier_wait(shared.barrier(0), 0);
  m->out[me()] = shared.slot(1)[me()];
}

template <bool wrong>
__global__ void too_many_bytes(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), wrong ? slot_bytes + 16 : slot_bytes);
    tma_load(shared.slot(0), map, shared.barrier(0), 0, 0, 0, 0);
  }
  mbarrier_wait(shared.barrier(0), 0);  // BUG too_many_bytes
  m->out[me()] = shared.slot(0)[me()];
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
__global__ void load_over_load(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) {
      if (!wrong && i == 1) mbarrier_wait(shared.barrier(0), 0);
      mbarrier_arrive_expect_tx(shared.barrier(i), slot_bytes);
      tma_load(shared.slot(0), map, shared.barrier(i), 0, 8 * i, 0, 0);  // BUG load_over_load
    }
  }
  mbarrier_wait(shared.barrier(1), 0);
  m->out[me()] = shared.slot(0)[me()];
  if (wrong) mbarrier_wait(shared.barrier(0), 0);
}

/// Threads clear a slot, then the TMA fills it: the async proxy may write first.
template <bool wrong>
__global__ void load_over_stores_unfenced(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  shared.slot(0)[me()] = 0;
  if (!wrong) fence_proxy_async();
  __syncthreads();
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), slot_bytes);
    tma_load(shared.slot(0), map, shared.barrier(0), 0, 0, 0, 0);  // BUG load_over_stores_unfenced
  }
  mbarrier_wait(shared.barrier(0), 0);
  m->out[me()] = shared.slot(0)[me()];
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
  return {
      async_case<load_read_early<true>, load_read_early<false>, 64>("load_read_early", not_landed),
      async_case<other_mbarrier_awaited<true>, other_mbarrier_awaited<false>, 64>("other_mbarrier_awaited", not_landed),
      async_case<load_awaited_by_another_warp<true>, load_awaited_by_another_warp<false>, 64>(
          "load_awaited_by_another_warp", "has not waited for its mbarrier"),
      async_case<too_few_bytes<true>, too_few_bytes<false>, 64>("too_few_bytes", not_landed),
      async_case<too_many_bytes<true>, too_many_bytes<false>, 64>("too_many_bytes", "lacks 16 bytes"),
      async_case<parity_not_flipped<true>, parity_not_flipped<false>, 64>("parity_not_flipped", "wrong parity"),
      async_case<load_over_load<true>, load_over_load<false>, 64>("load_over_load", "the load overwrites"),
      async_case<load_over_stores_unfenced<true>, load_over_stores_unfenced<false>, 64>("load_over_stores_unfenced",
                                                                                        "without fence_proxy_async()"),
      async_case<mbarrier_unfenced_for_the_tma<true>, mbarrier_unfenced_for_the_tma<false>, 64>("mbarrier_unfenced_for_the_tma",
                                                                                                "first fence_mbarrier_init()"),
      async_case<buffers_overlap<true>, buffers_overlap<false>, 64>("buffers_overlap", "the same shared memory"),
      async_case<load_into_next_buffer<true>, load_into_next_buffer<false>, 64>("load_into_next_buffer",
                                                                                "the same shared memory"),
      async_case<mbarrier_overwritten<true>, mbarrier_overwritten<false>, 64>("mbarrier_overwritten", "was overwritten"),
  };
}

}  // namespace
}  // namespace flash
