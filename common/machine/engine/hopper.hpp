// What a block has of Hopper: mbarriers, named barriers, the TMA's copies, products of warpgroups.
#pragma once

#include "common/machine/engine/async_proxy.hpp"
#include "common/machine/engine/copies.hpp"
#include "common/machine/engine/mbarriers.hpp"
#include "common/machine/engine/named_barriers.hpp"
#include "common/machine/engine/register_pool.hpp"
#include "common/machine/engine/warpgroups.hpp"

#include <string>

namespace flash::machine {

struct Hopper {
  Hopper(Scheduler& scheduler, Observers& observers, BlockState& block)
      : mbarriers(scheduler, observers),
        proxy(mbarriers),
        named_barriers(scheduler, observers),
        registers(scheduler, observers),
        copies(scheduler, observers, block, mbarriers, proxy),
        warpgroups(scheduler, observers, block, proxy) {}

  Mbarriers mbarriers;
  AsyncProxy proxy;
  NamedBarriers named_barriers;
  RegisterPool registers;
  Copies copies;
  Warpgroups warpgroups;

  /// May an access there meddle with what is in flight? Asked for each access of a kernel, and mostly not.
  bool concerns(const void* address) const { return proxy.contains(address) || warpgroups.any_in_flight(); }

  void start_block(MemoryRange dynamic_shared, std::size_t threads) {
    proxy.start_block(dynamic_shared, threads);
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
  void end_block(bool lenient) {
    copies.end_block();
    warpgroups.end_block();
    if (!lenient) mbarriers.end_block();
    named_barriers.end_block();
    registers.end_block();
  }
  /// For a deadlock.
  std::string missing() const { return mbarriers.missing() + named_barriers.missing() + registers.missing(); }
};

}  // namespace flash::machine
