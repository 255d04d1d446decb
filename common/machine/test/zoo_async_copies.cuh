// cp.async and the TMA's stores: each thread waits for its own groups.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo_async.cuh"

namespace flash {
namespace {

// ---- cp.async: thread i copies four words to word 4 i of a slot ------------------------------------------------------------------------

enum class Copy { right, read_early, not_committed, stored_over };

template <Copy mistake>
__global__ void one_copy(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  unsigned* const mine = shared.slot(0) + 4 * me();
  cp_async<16>(mine, m->in + 4 * me());  // BUG store_over_copy
  if (mistake != Copy::not_committed) cp_async_commit();
  if (mistake == Copy::right || mistake == Copy::not_committed) cp_async_wait<0>();
  if (mistake != Copy::stored_over) m->out[me()] = *mine;  // BUG copy_read_early | copy_not_committed
  if (mistake == Copy::right || mistake == Copy::stored_over) *mine = 7;
  cp_async_wait_all();
}

/// Two slots in turns: copy i + 1 runs while i is read.
template <bool wrong>
__global__ void copy_group_too_new(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  const auto mine = [&](int i) { return shared.slot(i % 2) + 4 * me(); };
  cp_async<16>(mine(0), m->in + 4 * me());
  cp_async_commit();
  for (int i = 0; i < 4; ++i) {
    if (i < 3) cp_async<16>(mine(i + 1), m->in + slot_words * (i + 1) + 4 * me());
    cp_async_commit();
    cp_async_wait<wrong ? 2 : 1>();
    m->out[32 * i + me()] = *mine(i);  // BUG copy_group_too_new
  }
  cp_async_wait_all();
}

template <bool wrong>
__global__ void copy_over_copy(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  unsigned* const mine = shared.slot(0) + 4 * me();
  cp_async<16>(mine, m->in + 4 * me());
  cp_async_commit();
  cp_async<16>(mine + slot_words, m->in + 4 * me());
  cp_async_commit();
  cp_async_wait<wrong ? 2 : 1>();
  cp_async<16>(mine, m->in + slot_words + 4 * me());  // BUG copy_over_copy
  cp_async_commit();
  cp_async_wait<0>();
  m->out[me()] = *mine;
}

/// A thread waits for its own copies only.
template <bool wrong>
__global__ void copy_of_neighbour(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  cp_async<16>(shared.slot(0) + 4 * me(), m->in + 4 * me());
  cp_async_commit();
  cp_async_wait<0>();
  if (!wrong) __syncthreads();
  m->out[me()] = shared.slot(0)[4 * (63 - me())];  // BUG copy_of_neighbour
}

template <bool wrong>
__global__ void arrival_before_copy_wait(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 32);
  if (warp() == 0) {
    cp_async<16>(shared.slot(0) + 4 * me(), m->in + 4 * me());
    cp_async_commit();
    if (!wrong) cp_async_wait<0>();
    mbarrier_arrive(shared.barrier(0));
    cp_async_wait<0>();
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    m->out[me()] = shared.slot(0)[4 * lane()];  // BUG arrival_before_copy_wait
  }
}

// ---- stores of the TMA -----------------------------------------------------------------------------------------------------------------

/// A slot that all threads have written, ready for the TMA.
__device__ inline void fill_slot(unsigned* slot, bool fence = true) {
  for (int i = me(); i < slot_words; i += 64) slot[i] = 5;
  if (fence) fence_proxy_async();
  __syncthreads();
}

enum class Store { right, overwritten, group_too_new, not_committed, not_awaited, unfenced, read_back_early };

/// Two groups: to wait for all but one frees the slot of the first. bulk_wait_read() frees shared memory; what was stored is in global memory after
/// bulk_wait().
template <Store mistake>
__global__ void two_stores(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(1));
  fill_slot(shared.slot(0), mistake != Store::unfenced);
  if (me() != 0) return;
  bulk_store(m->out + slot_words, shared.slot(1), slot_bytes);
  bulk_commit();
  bulk_store(m->out, shared.slot(0), slot_bytes);  // BUG store_unfenced | store_not_awaited
  if (mistake != Store::not_committed) bulk_commit();
  if (mistake == Store::right) bulk_wait_read<1>();
  if (mistake == Store::right) shared.slot(1)[0] = 7;
  constexpr int pending = mistake == Store::group_too_new || mistake == Store::not_awaited ? 1 : 0;
  if (mistake != Store::overwritten) bulk_wait_read<pending>();
  if (mistake == Store::not_awaited) return;
  shared.slot(0)[0] = 7;  // BUG store_source_overwritten | store_group_too_new | store_not_committed
  if (mistake != Store::read_back_early) bulk_wait<0>();
  m->out[2 * slot_words] = m->out[0];  // BUG store_read_back_early
}

/// Thread 0 gives the slot back; thread 32 has the TMA load into it.
template <bool wrong>
__global__ void load_over_source(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared);
  fill_slot(shared.slot(0));
  if (me() == 0) {
    bulk_store(m->out, shared.slot(0), slot_bytes);
    bulk_commit();
    if (wrong) mbarrier_arrive(shared.barrier(0));
    bulk_wait_read<0>();
    if (!wrong) mbarrier_arrive(shared.barrier(0));
  } else if (me() == 32) {
    mbarrier_wait(shared.barrier(0), 0);
    mbarrier_arrive_expect_tx(shared.barrier(1), slot_bytes);
    bulk_load(shared.slot(0), m->in, slot_bytes, shared.barrier(1));  // BUG load_over_source
    mbarrier_wait(shared.barrier(1), 0);
  }
}

/// Groups belong to the thread that has committed them.
template <bool wrong>
__global__ void store_awaited_by_another(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0));
  if (me() == 0) {
    bulk_store(m->out, shared.slot(0), slot_bytes);
    bulk_commit();
    if (!wrong) bulk_wait_read<0>();
  }
  __syncthreads();
  if (me() == 1) {
    if (wrong) bulk_wait_read<0>();
    shared.slot(0)[0] = 7;  // BUG store_awaited_by_another
  }
  __syncthreads();
  if (me() == 0) bulk_wait_read<0>();
}

enum class Fence { by_writer, by_writer_late, by_reader, by_neighbour };

/// Warp 0 writes and arrives, thread 32 waits and stores. The fence has to lie between the two, on either side of the mbarrier.
template <Fence fence>
__global__ void fence_between(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared, 32);
  if (warp() == 0) {
    for (int i = lane(); i < slot_words; i += 32) shared.slot(0)[i] = 5;
    if (fence == Fence::by_writer) fence_proxy_async();
    mbarrier_arrive(shared.barrier(0));
    if (fence == Fence::by_writer_late) fence_proxy_async();
    return;
  }
  mbarrier_wait(shared.barrier(0), 0);
  if (fence == Fence::by_neighbour && lane() == 1) fence_proxy_async();
  __syncwarp();
  if (lane() == 0) {
    if (fence == Fence::by_reader) fence_proxy_async();
    bulk_store(m->out, shared.slot(0), slot_bytes);  // BUG fence_after_arrival
    bulk_commit();
    bulk_wait_read<0>();
  }
}

std::vector<AsyncCase> copy_cases() {
  const char* const unwritten = "reads shared memory that no thread has written";
  const char* const race = "the same shared memory";
  const char* const still_read = "still reads";
#define COPY(name, mistake, says) ASYNC_CASE(name, one_copy, Copy::mistake, Copy::right, 32, says)
#define STORE(name, mistake, says) ASYNC_CASE(name, two_stores, Store::mistake, Store::right, 64, says)
  return {
      COPY("copy_read_early", read_early, unwritten),
      COPY("copy_not_committed", not_committed, unwritten),
      COPY("store_over_copy", stored_over, "was stored to before it landed"),
      ASYNC_TWINS(copy_group_too_new, 32, unwritten),
      ASYNC_TWINS(copy_over_copy, 32, "into the target of the one at"),
      ASYNC_TWINS(copy_of_neighbour, 64, race),
      ASYNC_TWINS(arrival_before_copy_wait, 64, race),
      STORE("store_source_overwritten", overwritten, still_read),
      STORE("store_group_too_new", group_too_new, still_read),
      STORE("store_not_committed", not_committed, still_read),
      STORE("store_not_awaited", not_awaited, "without having waited"),
      STORE("store_unfenced", unfenced, "without fence_proxy_async()"),
      STORE("store_read_back_early", read_back_early, "reads global memory"),
      ASYNC_TWINS(load_over_source, 64, still_read),
      ASYNC_TWINS(store_awaited_by_another, 64, still_read),
      ASYNC_CASE("fence_after_arrival", fence_between, Fence::by_writer_late, Fence::by_writer, 64, "fenced too late"),
      ASYNC_CORRECT("fence_by_the_reader", fence_between<Fence::by_reader>, 64),
      ASYNC_CORRECT("fence_by_a_neighbour", fence_between<Fence::by_neighbour>, 64),
  };
#undef COPY
#undef STORE
}

}  // namespace
}  // namespace flash
