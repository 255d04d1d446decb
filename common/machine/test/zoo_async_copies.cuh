// cp.async and the TMA's stores: each thread waits for its own groups.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo_async.cuh"

namespace flash {
namespace {

// ---- cp.async: thread i copies four words to word 4 i of a slot ------------------------------------------------------------------------

template <bool wrong>
__global__ void copy_read_early(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  unsigned* const mine = shared.slot(0) + 4 * me();
  cp_async<16>(mine, m->in + 4 * me());
  cp_async_commit();
  if (!wrong) cp_async_wait<0>();
  m->out[me()] = *mine;  // BUG copy_read_early
  cp_async_wait_all();
}

template <bool wrong>
__global__ void copy_not_committed(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  unsigned* const mine = shared.slot(0) + 4 * me();
  cp_async<16>(mine, m->in + 4 * me());
  if (!wrong) cp_async_commit();
  cp_async_wait<0>();
  m->out[me()] = *mine;  // BUG copy_not_committed
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

template <bool wrong>
__global__ void store_over_copy(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  unsigned* const mine = shared.slot(0) + 4 * me();
  cp_async<16>(mine, m->in + 4 * me());  // BUG store_over_copy
  cp_async_commit();
  if (!wrong) cp_async_wait<0>();
  *mine = 7;
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

template <bool wrong>
__global__ void store_source_overwritten(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0));
  if (me() != 0) return;
  bulk_store(m->out, shared.slot(0), slot_bytes);
  bulk_commit();
  if (!wrong) bulk_wait_read<0>();
  shared.slot(0)[0] = 7;  // BUG store_source_overwritten
  bulk_wait_read<0>();
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

/// Two groups: to wait for all but one frees the first slot.
template <bool wrong>
__global__ void store_group_too_new(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0));
  fill_slot(shared.slot(1));
  if (me() != 0) return;
  for (int i = 0; i < 2; ++i) {
    bulk_store(m->out + i * slot_words, shared.slot(i), slot_bytes);
    bulk_commit();
  }
  bulk_wait_read<1>();
  shared.slot(wrong ? 1 : 0)[0] = 7;  // BUG store_group_too_new
  bulk_wait_read<0>();
}

template <bool wrong>
__global__ void store_not_committed(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0));
  if (me() != 0) return;
  bulk_store(m->out, shared.slot(0), slot_bytes);
  if (!wrong) bulk_commit();
  bulk_wait_read<0>();
  shared.slot(0)[0] = 7;  // BUG store_not_committed
  if (wrong) bulk_commit();
  bulk_wait_read<0>();
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

template <bool wrong>
__global__ void store_not_awaited(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0));
  if (me() != 0) return;
  bulk_store(m->out, shared.slot(0), slot_bytes);  // BUG store_not_awaited
  bulk_commit();
  if (!wrong) bulk_wait_read<0>();
}

template <bool wrong>
__global__ void store_unfenced(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0), !wrong);
  if (me() != 0) return;
  bulk_store(m->out, shared.slot(0), slot_bytes);  // BUG store_unfenced
  bulk_commit();
  bulk_wait_read<0>();
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

/// bulk_wait_read() frees the shared memory; what was stored is in global memory after bulk_wait().
template <bool wrong>
__global__ void store_read_back_early(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_slot(shared.slot(0));
  if (me() != 0) return;
  bulk_store(m->out, shared.slot(0), slot_bytes);
  bulk_commit();
  if (wrong) {
    bulk_wait_read<0>();
  } else {
    bulk_wait<0>();
  }
  m->out[slot_words] = m->out[0];  // BUG store_read_back_early
}

std::vector<AsyncCase> copy_cases() {
  const char* const unwritten = "reads shared memory that no thread has written";
  const char* const race = "the same shared memory";
  const char* const still_read = "still reads";
  return {
      async_case<copy_read_early<true>, copy_read_early<false>, 32>("copy_read_early", unwritten),
      async_case<copy_not_committed<true>, copy_not_committed<false>, 32>("copy_not_committed", unwritten),
      async_case<copy_group_too_new<true>, copy_group_too_new<false>, 32>("copy_group_too_new", unwritten),
      async_case<copy_over_copy<true>, copy_over_copy<false>, 32>("copy_over_copy", "into the target of the one at"),
      async_case<store_over_copy<true>, store_over_copy<false>, 32>("store_over_copy", "was stored to before it landed"),
      async_case<copy_of_neighbour<true>, copy_of_neighbour<false>, 64>("copy_of_neighbour", race),
      async_case<arrival_before_copy_wait<true>, arrival_before_copy_wait<false>, 64>("arrival_before_copy_wait", race),
      async_case<store_source_overwritten<true>, store_source_overwritten<false>, 64>("store_source_overwritten", still_read),
      async_case<load_over_source<true>, load_over_source<false>, 64>("load_over_source", still_read),
      async_case<store_group_too_new<true>, store_group_too_new<false>, 64>("store_group_too_new", still_read),
      async_case<store_not_committed<true>, store_not_committed<false>, 64>("store_not_committed", still_read),
      async_case<store_awaited_by_another<true>, store_awaited_by_another<false>, 64>("store_awaited_by_another", still_read),
      async_case<store_not_awaited<true>, store_not_awaited<false>, 64>("store_not_awaited", "without having waited"),
      async_case<store_unfenced<true>, store_unfenced<false>, 64>("store_unfenced", "without fence_proxy_async()"),
      async_case<fence_between<Fence::by_writer_late>, fence_between<Fence::by_writer>, 64>("fence_after_arrival",
                                                                                            "fenced too late"),
      async_case<store_read_back_early<true>, store_read_back_early<false>, 64>("store_read_back_early", "reads global memory"),
      correct_case<fence_between<Fence::by_reader>, 64>("fence_by_the_reader"),
      correct_case<fence_between<Fence::by_neighbour>, 64>("fence_by_a_neighbour"),
  };
}

}  // namespace
}  // namespace flash
