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

enum class Announced { by_mbarrier, by_mbarrier_early, by_name, by_name_early };

/// An arrival before the store that it is to announce.
template <Announced how>
__global__ void one_store(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 32);
  constexpr bool named = how >= Announced::by_name;
  const auto arrive = [&] { named ? named_barrier_arrive(1, 64) : mbarrier_arrive(shared.barrier(0)); };
  if (warp() == 0) {
    if (how == Announced::by_mbarrier_early || how == Announced::by_name_early) arrive();
    shared.slot(0)[lane()] = m->in[lane()];
    if (how == Announced::by_mbarrier || how == Announced::by_name) arrive();
  } else {
    named ? named_barrier_sync(1, 64) : mbarrier_wait(shared.barrier(0), 0);
    m->out[lane()] = shared.slot(0)[lane()];  // BUG arrival_before_store | announced_early
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

std::vector<AsyncCase> ring_cases() {
  const char* const race = "the same shared memory";
#define RING(name, mistake, right, says) ASYNC_CASE(name, two_slots, Ring::mistake, Ring::right, 64, says)
#define ANNOUNCED(name, how) ASYNC_CASE(name, one_store, Announced::how##_early, Announced::how, 64, race)
  return {
      RING("ring_refilled_early", refilled_early, right, "one arrival too many"),
      RING("ring_other_slot", other_slot, right, " has landed"),
      RING("ring_released_early", released_early, right, race),
      RING("ring_released_by_one_lane", one_lane_early, one_lane, race),
      ASYNC_TWINS(producer_not_counted, 96, race),
      ASYNC_TWINS(consumer_not_counted, 96, race),
      ASYNC_TWINS(consumer_not_awaited, 96, race),
      ANNOUNCED("arrival_before_store", by_mbarrier),
      ANNOUNCED("announced_early", by_name),
      ASYNC_TWINS(mbarrier_not_published, 64, "first __syncthreads()"),
      ASYNC_TWINS(arrival_missing, 64, "deadlock"),
      ASYNC_TWINS(arrival_too_many, 64, "deadlock"),
      ASYNC_TWINS(named_barrier_count, 96, "but 96 threads are awaited"),
      ASYNC_TWINS(named_barrier_id, 64, "deadlock"),
      ASYNC_TWINS(registers_not_given_up, 384, "deadlock"),
      ASYNC_CORRECT("ring_of_bulk_loads", two_slots<Ring::bulk>, 64),
      ASYNC_CORRECT("phase_skipped", phase_skipped, 64),
      ASYNC_CORRECT("all_wait_for_loads", all_wait_for_loads, 64),
  };
#undef RING
#undef ANNOUNCED
}

}  // namespace
}  // namespace flash
