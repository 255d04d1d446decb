// What a block has of Hopper: mbarriers, named barriers, the TMA's copies, products of warpgroups; and what of it is still to happen.
#pragma once

#include "common/simt/machine/copies.hpp"
#include "common/simt/machine/crews.hpp"
#include "common/simt/machine/mbarriers.hpp"
#include "common/simt/machine/units.hpp"
#include "common/simt/machine/warpgroups.hpp"

#include <deque>
#include <functional>
#include <string>

namespace flash::machine {

struct Hopper {
  explicit Hopper(Worker& worker)
      : mbarriers(worker),
        units(mbarriers),
        named_barriers(worker),
        registers(worker),
        copies(worker, *this),
        warpgroups(worker, *this) {}

  Mbarriers mbarriers;
  SharedUnits units;
  NamedBarriers named_barriers;
  Registers registers;
  Copies copies;
  Warpgroups warpgroups;

  /// May an access there meddle with what is in flight? Asked for each access of a kernel, and mostly not.
  bool concerns(const void* address) const { return units.contains(address) || warpgroups.any_in_flight(); }

  /// What is asynchronous and due when no thread can go on, in the name of a thread.
  struct Due {
    Thread* thread;
    std::function<void()> happen;
    const void* mbarrier;  ///< a load's; null: a thread waits for it
  };
  std::deque<Due> due;
  void later(Thread& thread, std::function<void()> happen, const void* mbarrier = nullptr) {
    due.push_back({&thread, std::move(happen), mbarrier});
  }
  /// In watched launches loads that no thread waits for come last: after a wait for the wrong mbarrier they are still in flight.
  bool is_urgent(const Due& each) const { return each.mbarrier == nullptr || mbarriers.awaited(each.mbarrier); }

  void start_block(MemoryRange dynamic_shared, std::size_t threads) {
    due.clear();
    units.start_block(dynamic_shared, threads);
    mbarriers.start_block();
    named_barriers.start_block();
    registers.start_block(threads);
    copies.start_block(threads);
    warpgroups.start_block(threads);
  }
  void thread_exits(const Thread& thread) {
    copies.thread_exits(thread);
    warpgroups.thread_exits(thread);
  }
  void end_block() {
    copies.end_block();
    warpgroups.end_block();
    mbarriers.end_block();
    named_barriers.end_block();
    registers.end_block();
  }
  /// For a deadlock.
  std::string missing() const { return mbarriers.missing() + named_barriers.missing() + registers.missing(); }
};

}  // namespace flash::machine
