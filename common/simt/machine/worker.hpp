// One operating-system thread's machine: it runs blocks one after the other, and the CUDA threads of a block as fibers that pass
// control to each other directly.
#pragma once

#include "common/simt/launch.hpp"
#include "common/simt/machine/access_log.hpp"
#include "common/simt/machine/context.hpp"
#include "common/simt/machine/instrumentation.hpp"
#include "common/simt/machine/reach.hpp"
#include "common/simt/machine/shared_memory.hpp"
#include "common/simt/machine/stack.hpp"
#include "common/simt/machine/trace.hpp"
#include "common/simt/machine/watch.hpp"
#include "common/simt/options.hpp"
#include "common/simt/ptx.hpp"
#include "common/simt/reference.hpp"
#include "common/simt/thread.hpp"
#include "common/simt/warp.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace flash::machine {

enum class State : std::uint8_t {
  ready,
  at_barrier,
  in_warp_operation,
  at_mbarrier,
  at_named_barrier,
  at_setmaxnreg,
  at_bulk_wait,
  at_wgmma_wait,
  exited,
};
enum class BarrierKind : std::uint8_t { plain, count, all, any };

/// An asynchronous copy that a thread has issued and not yet waited for.
struct PendingCopy {
  AsyncCopy copy;
  Site site;
  int group;  ///< the commit group it belongs to
};

struct Hopper;

/// A CUDA thread.
struct Thread {
  Context context;
  Stack stack;
  void* fiber = nullptr;  ///< ThreadSanitizer's name for it
  uint3 index{};          ///< threadIdx
  int number = 0;         ///< in the block
  State state = State::ready;
  // Where and for what it waits.
  Site site;
  BarrierKind barrier = BarrierKind::plain;
  WarpRequest request{};
  std::uint64_t result = 0;     ///< of the barrier or warp operation it waited for
  std::int64_t steps_left = 0;  ///< while it does not run (Instruments)
  int unwatched = 0;            ///< likewise
  // Asynchronous copies, oldest first.
  std::vector<PendingCopy> copies;
  int groups = 0;  ///< commit groups closed so far
  // Fences, for whoever looks for races (atomic.cpp).
  bool fenced = false;          ///< has called a __threadfence
  void* last_atomic = nullptr;  ///< the target of its last atomic

  int lane() const { return number % warpSize; }
  int warp() const { return number / warpSize; }
};

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
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The machine of this operating-system thread; null outside kernels.
  static Worker* running();

  /// Runs the blocks first, first + step, ... until one fails or `stop` says so. Returns false if one failed: see failure().
  bool run(const KernelCall&, const Options&, std::uint64_t first, std::uint64_t step, const std::atomic<bool>& stop);

  // For the CUDA thread that runs now.
  Thread& current() { return *current_; }
  std::uint64_t barrier(BarrierKind, int predicate, Site);
  std::uint64_t warp_operation(const WarpRequest&, Site);

  /// What the block has of Hopper; from the first use on, the block's accesses to memory are held against it.
  Hopper& hopper();
  /// Waits in this state until somebody wakes it.
  void park(State, Site);
  void wake(const std::vector<Thread*>&);
  const std::vector<Thread*>& block_threads() const { return everyone_; }
  void count_steps(std::int64_t steps, Site site) {
    if ((instruments.steps_left -= steps) < 0) no_steps_left(site);
  }

  std::exception_ptr failure() const { return failure_; }
  std::uint64_t failed_block() const { return block_; }
  const Options& options() const { return options_; }
  const SharedMemory& shared_memory() const { return shared_; }
  AccessLog& shared_log() { return shared_log_; }
  AccessLog& global_log() { return global_log_; }
  Counters& counters() { return counters_; }
  const std::vector<Traffic>& traffic() const { return traffic_; }
  Traffic& traffic(int id) { return traffic_[static_cast<std::size_t>(id)]; }

  /// "kernel scores, block (0,0,1), thread (5,2,0)", or without the thread.
  std::string place(bool with_thread) const;

  // What ends the block from within a thread without unwinding its calls.
  [[noreturn]] void abandon(const std::string& message);
  /// For signal handlers too, which may not even allocate memory: the message is made later. `instruction` is the one that is to blame.
  enum class Fault : std::uint8_t { none, stack_overflow, bad_address, stands_still };
  [[noreturn]] void abandon(Fault, const void* address, const void* instruction);
  bool in_guard(const void* address) const { return stacks_.in_guard(address, current_->number); }

  /// The accesses since the last barrier, which are kept to count them, no longer fit into memory.
  [[noreturn]] void log_is_full(Site);
  /// Ends the block if a kernel may not access these bytes.
  void hold_against_reach(const void* address, std::size_t bytes, AccessKind, const CodePlace&);
  [[noreturn]] void no_steps_left(Site);
  [[noreturn]] void no_steps_left(const void* from);  ///< at the access that returns there
  /// What a token orders, for whoever looks for races. Token: the target of an atomic.
  void release(void* token);
  void acquire(void* token);
  void fence() {
    if (watch_ != nullptr) watch_->fence();
  }
  bool traced() const { return trace_ != nullptr; }
  /// An event of the running thread, or of the block's end (warp -1), for whoever wants to see it.
  void trace(const char* event, std::initializer_list<Trace::Number> numbers, Site site, const char* tensor = nullptr) {
    if (trace_ != nullptr) trace_->add(event, current_ == nullptr ? -1 : current_->warp(), numbers, site, tensor);
  }

 private:
  void prepare(const KernelCall&);
  void run_block(std::uint64_t block);
  static void run_thread();
  void thread_exits();
  static void renew_fiber(Thread&);
  void suspend();
  void resume(Thread&);
  [[noreturn]] void leave_block();
  void make_ready(const std::vector<Thread*>&);
  Thread* next_ready();
  void follow_schedule();
  void happen();
  void end_hopper();
  void check_static_use();
  void complete_barrier();
  void count_logged_accesses();
  void complete_warp_operation(Warp&, Site);
  void tensor_core(WarpOperation);
  std::string stuck() const;
  void order(const std::vector<Thread*>&, void* token);
  void order_with_main(bool begin);
  std::string message(Fault) const;
  std::string endless(const std::string& line) const;

  const KernelCall* kernel_ = nullptr;
  Options options_;
  std::uint64_t block_ = 0;
  std::mt19937_64 random_;

  StackPool stacks_;
  Reach reach_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Thread*> everyone_, lanes_, released_;  ///< the block; who completes; who wakes
  std::vector<Thread*> ready_;                        ///< a stack; its last thread runs next
  Thread* current_ = nullptr;
  int at_barrier_ = 0;
  std::size_t exited_ = 0;
  Fault fault_ = Fault::none;  ///< of current_
  std::uintptr_t fault_address_ = 0, fault_instruction_ = 0;
  std::unique_ptr<Watch> watch_;  ///< null: nobody looks
  Trace* trace_ = nullptr;        ///< null: nobody records the block
  std::unique_ptr<Hopper> hopper_;
  bool hopper_used_ = false;  ///< by this block
  Context main_;
  Stack main_stack_;
  void* main_fiber_ = nullptr;

  SharedMemory shared_;
  StaticSharedUse static_use_;
  AccessLog shared_log_, global_log_;  ///< what the warps access between two barriers, in counting runs
  std::exception_ptr failure_;
  Counters counters_;
  std::vector<Traffic> traffic_;
};

/// The number of ids that traffic_id() has given out.
int traffic_ids();
/// The tensors they stand for.
std::vector<std::string> traffic_names();

/// The running machine; throws std::logic_error if `what` is called outside a kernel.
Worker& running_worker(const char* what);

}  // namespace flash::machine
