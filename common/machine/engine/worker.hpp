// One operating-system thread's machine: it runs blocks one after the other.
#pragma once

#include "common/machine/engine/block_state.hpp"
#include "common/machine/engine/observers.hpp"
#include "common/machine/engine/reach.hpp"
#include "common/machine/engine/scheduler.hpp"
#include "common/machine/error.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace flash::machine {

struct Hopper;

/// The lanes of one warp.
struct Warp {
  unsigned present = 0;  ///< lanes that exist: fewer than 32 in a last warp that is not full
  unsigned waiting = 0;  ///< lanes in a warp operation
  unsigned exited = 0;
};

class Worker {
 public:
  Worker();
  ~Worker();

  /// The machine of this operating-system thread; null outside kernels.
  static Worker* running();

  /// Runs the blocks first, first + step, ... until one fails or `stopped` says so. Returns false if one failed, the last one. With a grid `first`
  /// is the worker's number, and the grid says which blocks.
  bool run(const KernelCall&, const Options&, std::uint64_t first, std::uint64_t step, const std::function<bool()>& stopped,
           Grid* grid);

  Scheduler scheduler;
  Observers observers{scheduler};
  BlockState block;

  // For the CUDA thread that runs now.
  Thread& current() { return scheduler.current(); }
  std::uint64_t barrier(BarrierKind, int predicate, Site, const CallPlace&);
  std::uint64_t warp_operation(const WarpRequest&, Site, const CallPlace&);
  /// What the block has of Hopper; from the first use on, the block's accesses to memory are held against it.
  Hopper& hopper();
  /// The accesses since the last barrier, which are kept to count them, no longer fit into memory.
  [[noreturn]] void log_is_full(Site);
  /// Counts the access if it is one by a plain pointer among the kernel's parameters; ends the block if a kernel may not access these bytes.
  void hold_against_reach(const void* address, std::size_t bytes, AccessKind, const CodePlace&);

 private:
  void count_plain_pointer(int id, const void* address, std::size_t bytes, AccessKind, const CodePlace&);
  void run_block(std::uint64_t number);
  void start_block(std::uint64_t number);
  void start_instruments();
  void end_block();
  void check_end();
  static void run_thread();
  void thread_exits();
  int awaited_at_barrier() const;
  void complete_barrier();
  void remark_apart(const char* why) const;
  unsigned awaited(const Warp&, const WarpRequest&) const;
  bool complete_warp_operation(Warp&, const Thread&);
  void wait_no_longer();
  void tensor_core(WarpOperation);
  KernelError stuck() const;

  Reach reach_;
  std::vector<Warp> warps_;
  std::vector<Thread*> lanes_, released_;  ///< who completes a warp operation; who wakes
  int at_barrier_ = 0;
  Site remarked_;  ///< the last barrier of which there is a remark
  std::unique_ptr<Hopper> hopper_;
  bool hopper_used_ = false;  ///< by this block
};

/// The running machine; throws std::logic_error if `what` is called outside a kernel.
Worker& running_worker(const char* what);

}  // namespace flash::machine
