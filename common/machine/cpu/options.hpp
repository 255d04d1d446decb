// How the simulator runs, and what it counted. Not for kernels: for the harness and for tests.
#pragma once

#include "common/machine/types.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace flash {
inline namespace simt {

/// The order in which the threads of a block get their turn. No correct kernel's result depends on it.
enum class Order { forward, reverse, random };

struct Options {
  Order order = Order::forward;
  std::uint64_t seed = 0;  ///< of Order::random
  int os_threads = 0;      ///< blocks run on that many operating-system threads; 0: as many as there are processors
  int target_sm = 90;      ///< 75, 80 or 90: whose limits a launch must keep
  std::int64_t steps =
      std::int64_t{1} << 30;  ///< of a CUDA thread, before it counts as endless: accesses to memory, and barriers
  int seconds = 0;            ///< of processor time since its block began: so long it may go on after those
  int idle_seconds = 10;      ///< of processor time that a CUDA thread may compute without a step
  bool watch = false;         ///< look for races and unwritten shared memory: findings.hpp; slower; one operating-system thread
  bool count = false;         ///< count bank conflicts too (bytes and operations are always counted); slower
  std::string trace = {};     ///< a file for what the first block of each launch does when: engine/trace.hpp
  /// What hardware since Volta puts up with: threads that have exited count as arrived at a barrier, a mask may name lanes that have exited or
  /// do not exist (what one reads from them is NaN), and the warps of a block may meet in different __syncthreads. As without host_pointers, a
  /// block may leave an mbarrier without arrivals that nobody waits for, and races that are harmless in practice are Findings::remarks.
  bool lenient = false;
  bool host_pointers = true;  ///< kernels may access memory of the host, within unknown bounds, if a parameter points there
  std::uint64_t watch_limit =
      30'000'000;  ///< accesses of a launch that a watch looks at; Findings::complete says if there were more
};

/// The options of the next launches. They start from the environment; a value that is not allowed there throws UsageError:
///   FLASH_SIMT_ORDER=forward|reverse|random:SEED   FLASH_SIMT_THREADS=1..1024   FLASH_SIMT_TARGET=75|80|90
///   FLASH_SIMT_STEPS=1..2^62   FLASH_SIMT_TRACE=FILE
Options options_from_environment();
Options options();
std::string order_text(const Options&);  ///< as FLASH_SIMT_ORDER has it
void set_options(const Options&);

/// Not 0: this thread's launches end after the blocks that run, and throw DeviceError. Null: nobody asks.
inline thread_local const volatile std::int32_t* stop_request = nullptr;

/// These options until the end of a scope, as for another GPU, or another order of threads and blocks.
class Simulated {
 public:
  explicit Simulated(const Options& options) { set_options(options); }
  ~Simulated() { set_options(before_); }
  Simulated(const Simulated&) = delete;
  Simulated& operator=(const Simulated&) = delete;

 private:
  const Options before_ = options();
};

/// What kernels print goes to this file until the end of a scope; null: nowhere, as where a launch is repeated. At first to stdout.
class PrintsTo {
 public:
  explicit PrintsTo(std::FILE*);
  ~PrintsTo();
  PrintsTo(const PrintsTo&) = delete;
  PrintsTo& operator=(const PrintsTo&) = delete;

 private:
  std::FILE* const before_;
};

/// What kernels access by plain pointers counts as an access to this tensor; views name theirs themselves.
void name_tensor(const TensorRef&);

/// What the launches since the last reset did, exactly.
Counters counters();
void reset_counters();

}  // namespace simt
}  // namespace flash
