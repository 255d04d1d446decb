// How the simulator runs, and what it counted. Not for kernels: for the harness and for tests.
#pragma once

#include "common/device/runtime.hpp"

#include <cstdint>

namespace flash {
inline namespace simt {

/// The order in which the threads of a block get their turn. No correct kernel's result depends on it.
enum class Order { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 0;  ///< of Order::random
  int os_threads = 0;      ///< blocks run on that many operating-system threads; 0: as many as there are processors
  int target_sm = 90;      ///< 75, 80 or 90: whose limits a launch must keep
  bool count = false;      ///< count bank conflicts too (bytes and operations are always counted); slower
};

/// The options of the next launches. They start from the environment; a value that is not allowed there throws UsageError:
///   FLASH_SIMT_ORDER=forward|reverse|random:SEED   FLASH_SIMT_THREADS=1..1024   FLASH_SIMT_TARGET=75|80|90
Options options_from_environment();
Options options();
void set_options(const Options&);

/// What the launches since the last reset did, exactly.
Counters counters();
void reset_counters();

}  // namespace simt
}  // namespace flash
