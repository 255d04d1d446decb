// The CUDA threads of a block, and what each waits for.
#pragma once

#include "common/machine/cpu/ptx.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/cpu/warp.hpp"
#include "common/machine/engine/context.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/stack.hpp"

#include <cstdint>
#include <vector>

namespace flash::machine {

using simt::AsyncCopy;
using simt::Site;
using simt::WarpRequest;

enum class State : std::uint8_t { ready, at_barrier, in_warp_operation, parked, exited };
enum class BarrierKind : std::uint8_t { plain, count, all, any };

/// An asynchronous copy that a thread has issued and not yet waited for.
struct PendingCopy {
  AsyncCopy copy;
  Site site;
  int group;  ///< the commit group it belongs to
};

/// A CUDA thread.
struct Thread {
  Context context;
  Stack stack;
  uint3 index{};   ///< threadIdx
  int number = 0;  ///< in the block
  State state = State::ready;
  // Where and for what it waits.
  Site site;
  CallPlace called;                 ///< by whom, as far as the call recorded it
  const char* parked_in = nullptr;  ///< "mbarrier_wait", if it is parked
  BarrierKind barrier = BarrierKind::plain;
  WarpRequest request{};
  std::uint64_t result = 0;      ///< of the barrier or warp operation it waited for
  std::int64_t steps_left = 0;   ///< while it does not run (Instruments)
  std::int64_t store = 0;        ///< of steps, for after those
  int unwatched = 0;             ///< as steps_left
  std::uintptr_t waits_for = 0;  ///< in a loop: what another thread has to change
  // Asynchronous copies, oldest first.
  std::vector<PendingCopy> copies;
  int groups = 0;  ///< commit groups closed so far
  // Fences, for whoever looks for races (atomic.cpp).
  bool fenced = false;               ///< has called a __threadfence; the token of what it did before
  bool published = false;            ///< an atomic or a flag since then
  const void* flag_store = nullptr;  ///< the first to a volatile flag since then, by where it returns to
  bool seen = false;                 ///< the token of what its atomics have met, which its next fence makes known to it
  bool fenced_block = false, seen_block = false;  ///< the same of a __threadfence_block, and within the block

  int lane() const { return number % warpSize; }
  int warp() const { return number / warpSize; }
};

}  // namespace flash::machine
