// Producers and consumers: slots that are refilled, arrivals, waits that never end.
#pragma once

#include "common/machine/test/zoo_async.cuh"

namespace flash {
namespace {

// ---- a ring of two slots ---------------------------------------------------------------------------------------------------------------

enum class Ring { right, bulk, one_lane, refilled_early, other_slot, released_early, one_lane_early };

/// Thread 32 loads six boxes; warp 0 copies them out. Slot i has mbarriers i (full) and 2 + i (empty).
template <Ring ring>
__global__ void two_slots(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  constexpr bool one_lane = ring == Ring::one_lane || ring == Ring::one_lane_early;
  start(shared, 1, 1, one_lane ? 1 : 32, one_lane ? 1 : 32);
  if (me() == 32) {
    for (int i = 0; i < 6; ++i) {
      Mbarrier& full = shared.barrier(i % 2);
      if (i > 2 || (i == 2 && ring != Ring::refilled_early)) mbarrier_wait(shared.barrier(2 + i % 2), (i / 2 - 1) % 2);
      mbarrier_arrive_expect_tx(full, slot_bytes);  // BUG ring_refilled_early
      if (ring == Ring::bulk) bulk_load(shared.slot(i % 2), m->in + slot_words * i, slot_bytes, full);
      if (ring != Ring::bulk) tma_load(shared.slot(i % 2), map, full, 0, 8 * i, 0, 0);
    }
  }
  if (warp() > 0) return;
  for (int i = 0; i < 6; ++i) {
    Mbarrier& empty = shared.barrier(2 + i % 2);
    mbarrier_wait(shared.barrier(i % 2), i / 2 % 2);
    const unsigned* const slot = shared.slot(ring == Ring::other_slot ? 1 - i % 2 : i % 2);
    if (ring == Ring::released_early) mbarrier_arrive(empty);
    if (ring == Ring::released_early) m->out[32 * i + me()] = slot[me()];  // BUG ring_released_early
    if (ring == Ring::one_lane_early) m->out[32 * i + me()] = slot[me()];  // BUG ring_released_by_one_lane
    if (ring != Ring::released_early && ring != Ring::one_lane_early)
      m->out[32 * i + me()] = slot[me()];  // BUG ring_other_slot
    if (ring == Ring::one_lane) __syncwarp();
    if (ring != Ring::released_early && (!one_lane || me() == 0)) mbarrier_arrive(empty);
  }
}

// ---- several producers or consumers --------------------------------------------------------------------------------------------------

/// Two warps write a half each; the mbarrier counts the threads of one.
template <bool wrong>
__global__ void producer_not_counted(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, wrong ? 32 : 64);
  if (warp() < 2) {
    shared.slot(0)[me()] = m->in[me()];
    mbarrier_arrive(shared.barrier(0));
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    for (int i = 0; i < 2; ++i) m->out[32 * i + lane()] = shared.slot(0)[32 * i + lane()];  // BUG producer_not_counted
  }
}

/// Two warps read a slot. The mbarrier that releases it counts the threads of one.
template <bool wrong>
__global__ void consumer_not_counted(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared, 1, wrong ? 32 : 64);
  for (int i = 0; i < 2; ++i) {
    if (me() == 64) {
      if (i == 1) mbarrier_wait(shared.barrier(1), 0);
      mbarrier_arrive_expect_tx(shared.barrier(0), slot_bytes);
      tma_load(shared.slot(0), map, shared.barrier(0), 0, 8 * i, 0, 0);
    }
    if (warp() == 2) continue;
    mbarrier_wait(shared.barrier(0), i);
    m->out[64 * i + me()] = shared.slot(0)[me()];  // BUG consumer_not_counted
    mbarrier_arrive(shared.barrier(1));
  }
}

/// Two consumers arrive on one mbarrier each; the producer waits for the first.
template <bool wrong>
__global__ void consumer_not_awaited(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 32, 32);
  shared.slot(0)[me()] = m->in[me()];
  __syncthreads();
  if (warp() < 2) {
    m->out[me()] = shared.slot(0)[me()];  // BUG consumer_not_awaited
    mbarrier_arrive(shared.barrier(warp()));
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    if (!wrong) mbarrier_wait(shared.barrier(1), 0);
    for (int i = 0; i < 2; ++i) shared.slot(0)[32 * i + lane()] = 0;
  }
}

template <bool wrong>
__global__ void arrival_before_store(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 32);
  if (warp() == 0) {
    if (wrong) mbarrier_arrive(shared.barrier(0));
    shared.slot(0)[lane()] = m->in[lane()];
    if (!wrong) mbarrier_arrive(shared.barrier(0));
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    m->out[lane()] = shared.slot(0)[lane()];  // BUG arrival_before_store
  }
}

/// bar.arrive before the store that it is to announce.
template <bool wrong>
__global__ void announced_early(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  if (warp() == 0) {
    if (wrong) named_barrier_arrive(1, 64);
    shared.slot(0)[lane()] = m->in[lane()];
    if (!wrong) named_barrier_arrive(1, 64);
  } else {
    named_barrier_sync(1, 64);
    m->out[lane()] = shared.slot(0)[lane()];  // BUG announced_early
  }
}

template <bool wrong>
__global__ void mbarrier_not_published(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 64);
    fence_mbarrier_init();
  }
  if (wrong) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  mbarrier_arrive(shared.barrier(0));  // BUG mbarrier_not_published
  mbarrier_wait(shared.barrier(0), 0);
  m->out[me()] = 0;
}

// ---- waits that never end --------------------------------------------------------------------------------------------------------------

/// Each warp waits for the other before it arrives.
template <bool wrong>
__global__ void circular_wait(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 32, 32);
  const int other = 1 - warp();
  if (!wrong && warp() == 0) mbarrier_arrive(shared.barrier(other));
  mbarrier_wait(shared.barrier(warp()), 0);  // BUG circular_wait
  if (wrong || warp() == 1) mbarrier_arrive(shared.barrier(other));
  m->out[me()] = 0;
}

/// The warp that should arrive has left.
template <bool wrong>
__global__ void arrival_missing(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 64);
  if (!wrong || warp() == 0) mbarrier_arrive(shared.barrier(0));
  if (warp() == 1) return;
  mbarrier_wait(shared.barrier(0), 0);  // BUG arrival_missing
  m->out[me()] = 0;
}

/// Two phases are over when the wait for the first begins.
template <bool wrong>
__global__ void arrival_too_many(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared);
  if (me() == 0) {
    mbarrier_arrive(shared.barrier(0));
    if (wrong) mbarrier_arrive(shared.barrier(0));
  }
  __syncthreads();
  mbarrier_wait(shared.barrier(0), 0);  // BUG arrival_too_many
  m->out[me()] = 0;
}

template <bool wrong>
__global__ void named_barrier_count(Memory* m, const __grid_constant__ TensorMap) {
  if (warp() < 2) {
    named_barrier_arrive(1, 96);
  } else {
    named_barrier_sync(1, wrong ? 64 : 96);  // BUG named_barrier_count
  }
  m->out[me()] = 0;
}

template <bool wrong>
__global__ void named_barrier_id(Memory* m, const __grid_constant__ TensorMap) {
  named_barrier_sync(wrong ? 1 + warp() : 1, 64);  // BUG named_barrier_id
  m->out[me()] = 0;
}

/// Two warpgroups ask for more registers than the third gives up.
template <bool wrong>
__global__ void __launch_bounds__(384, 1) registers_not_given_up(Memory* m, const __grid_constant__ TensorMap) {
  if (me() < 256) {
    setmaxnreg_inc<240>();  // BUG registers_not_given_up
  } else {
    setmaxnreg_dec<wrong ? 160 : 24>();
  }
  m->out[me()] = 0;
}

// ---- correct, though not obviously -----------------------------------------------------------------------------------------------------

/// Warp 1 waits for phase 1 and never waits for phase 0, which it knows to be over.
__global__ void phase_skipped(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared);
  if (me() == 0) mbarrier_arrive(shared.barrier(0));
  __syncthreads();
  if (warp() == 0) mbarrier_wait(shared.barrier(0), 0);
  __syncwarp();
  if (me() == 0) mbarrier_arrive(shared.barrier(0));
  if (warp() == 1) mbarrier_wait(shared.barrier(0), 1);
  m->out[me()] = 0;
}

/// All threads wait, each warp for a different load: only the TMA can end that.
__global__ void all_wait_for_loads(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  if (lane() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(warp()), slot_bytes);
    tma_load(shared.slot(warp()), map, shared.barrier(warp()), 0, 8 * warp(), 0, 0);
  }
  mbarrier_wait(shared.barrier(warp()), 0);
  m->out[me()] = shared.slot(warp())[lane()];
}

template <Ring ring, Ring right>
AsyncCase ring_case(const char* name, const char* says) {
  return async_case<two_slots<ring>, two_slots<right>, 64>(name, says);
}

std::vector<AsyncCase> ring_cases() {
  const char* const race = "the same shared memory";
  return {
      ring_case<Ring::refilled_early, Ring::right>("ring_refilled_early", "one arrival too many"),
      ring_case<Ring::other_slot, Ring::right>("ring_other_slot", " has landed"),
      ring_case<Ring::released_early, Ring::right>("ring_released_early", race),
      ring_case<Ring::one_lane_early, Ring::one_lane>("ring_released_by_one_lane", race),
      async_case<producer_not_counted<true>, producer_not_counted<false>, 96>("producer_not_counted", race),
      async_case<consumer_not_counted<true>, consumer_not_counted<false>, 96>("consumer_not_counted", race),
      async_case<consumer_not_awaited<true>, consumer_not_awaited<false>, 96>("consumer_not_awaited", race),
      async_case<arrival_before_store<true>, arrival_before_store<false>, 64>("arrival_before_store", race),
      async_case<announced_early<true>, announced_early<false>, 64>("announced_early", race),
      async_case<mbarrier_not_published<true>, mbarrier_not_published<false>, 64>("mbarrier_not_published",
                                                                                  "first __syncthreads()"),
      async_case<circular_wait<true>, circular_wait<false>, 64>("circular_wait", "deadlock"),
      async_case<arrival_missing<true>, arrival_missing<false>, 64>("arrival_missing", "deadlock"),
      async_case<arrival_too_many<true>, arrival_too_many<false>, 64>("arrival_too_many", "deadlock"),
      async_case<named_barrier_count<true>, named_barrier_count<false>, 96>("named_barrier_count",
                                                                            "but 96 threads are awaited"),
      async_case<named_barrier_id<true>, named_barrier_id<false>, 64>("named_barrier_id", "deadlock"),
      async_case<registers_not_given_up<true>, registers_not_given_up<false>, 384>("registers_not_given_up", "deadlock"),
      correct_case<two_slots<Ring::bulk>, 64>("ring_of_bulk_loads"),
      correct_case<phase_skipped, 64>("phase_skipped"),
      correct_case<all_wait_for_loads, 64>("all_wait_for_loads"),
  };
}

}  // namespace
}  // namespace flash
