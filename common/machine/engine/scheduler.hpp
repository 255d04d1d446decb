// Runs the CUDA threads of a block on one operating-system thread, as fibers that pass control to each other directly.
#pragma once

#include "common/machine/cpu/launch.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/grid.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/threads.hpp"
#include "common/machine/rules.hpp"

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace flash::machine {

class Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void start_launch(const KernelCall&, const Options&, Grid*);
  /// All threads of the block are ready to run `entry`, and current() is the first.
  void start_block(std::uint64_t block, void (*entry)());
  /// Runs them until all have exited, none can go on, or one fails; then `instruments` are reset.
  void run();

  // In the fiber of a thread: its first call, and its last.
  void enter();
  [[noreturn]] void exit();

  /// The thread that runs.
  Thread& current() { return *current_; }
  const Thread* running() const { return current_; }  ///< null outside run()
  const std::vector<Thread*>& threads() const { return threads_; }
  bool all_exited() const { return exited_ == threads_.size(); }
  std::size_t exited() const { return exited_; }
  const StackPool& stacks() const { return stacks_; }

  /// Waits until somebody wakes the thread. `call`: for messages.
  void park(const char* call, Site);
  void wake(const std::vector<Thread*>&);
  /// Passes control on; returns when somebody has made the thread ready again.
  void suspend();
  /// Goes on after all others that are ready.
  void yield();
  void make_ready(const std::vector<Thread*>&);
  void mark_exited();

  /// Something asynchronous, due when no thread can go on, in the name of a thread. In watched launches what is not urgent comes last.
  void later(Thread& thread, std::function<void()> happen, std::function<bool()> urgent = {}) {
    due_.push_back({&thread, std::move(happen), std::move(urgent)});
  }
  /// One of so many, by the order of threads that is asked for.
  std::size_t choose(std::size_t count);

  void count_steps(std::int64_t steps, auto where) {
    if ((instruments.steps_left -= steps) >= 0) return;
    current_->waits_for = 0;
    if (!take_share()) no_steps_left(where);
  }
  /// At each access from when a thread has used up a share of its steps until it gets the next: does it wait in a loop for what only another
  /// thread can change? Then others run first, of its block and of those that can be resident with it.
  void take_stock(std::uintptr_t address, std::size_t bytes, AccessKind, const void* from);
  [[noreturn]] void no_steps_left(Site);
  [[noreturn]] void no_steps_left(const void* from);  ///< at the access that returns there

  /// "kernel scores, block (0,0,1), thread (5,2,0)", or without the thread.
  std::string place(bool with_thread) const;
  std::exception_ptr failure() const { return failure_; }
  void fail(std::exception_ptr failure) { failure_ = std::move(failure); }

  // What ends the block from within a thread without unwinding its calls.
  [[noreturn]] void abandon(RuleId, const std::string& message);
  /// For signal handlers too, which may not even allocate memory: the message is made later. `instruction` is the one that is to blame.
  enum class Fault : std::uint8_t { none, stack_overflow, bad_address, stands_still };
  [[noreturn]] void abandon(Fault, const void* address, const void* instruction);
  Grid* grid() const { return grid_; }  ///< null: blocks run without regard to each other
  bool in_guard(const void* address) const { return stacks_.in_guard(address, current_->number); }

 private:
  struct Due {
    Thread* thread;
    std::function<void()> happen;
    std::function<bool()> urgent;  ///< empty: always
  };

  /// What a thread has accessed since its last share of steps was used up, its own stack left out.
  struct Stock {
    const Thread* thread = nullptr;
    int accesses = 0;
    std::vector<std::uintptr_t> places;
    bool gets_on = false;  ///< it writes, or reads here and there
  };

  std::int64_t share() const;
  bool take_share();
  bool has_time() const;
  void let_others_run(std::uintptr_t awaited, std::size_t bytes, const void* from);
  /// Some thread does more than wait in a loop.
  void move() {
    idle_turns_ = 0;
    moved_ = true;
  }
  void resume(Thread&);
  [[noreturn]] void leave_block();
  Thread* next_ready();
  void happen();
  std::string message(Fault) const;
  std::string endless(const std::string& line) const;

  const KernelCall* kernel_ = nullptr;
  Options options_;
  Grid* grid_ = nullptr;
  std::uint64_t block_ = 0;
  std::mt19937_64 random_;
  StackPool stacks_;
  std::vector<Thread> all_;       ///< of the largest block so far
  std::vector<Thread*> threads_;  ///< of the block
  std::vector<Thread*> ready_;    ///< a stack; its last thread runs next
  std::deque<Due> due_;
  Thread* current_ = nullptr;
  std::size_t exited_ = 0;
  Stock stock_;
  // Of threads that wait in loops.
  std::size_t idle_turns_ = 0;                        ///< since something moved, or the other blocks had their turn
  bool moved_ = true;                                 ///< anything in the block, since then
  std::chrono::steady_clock::time_point idle_since_;  ///< no block has moved
  double block_began_ = 0;                            ///< in processor time
  std::exception_ptr failure_;
  Fault fault_ = Fault::none;  ///< of current_
  std::uintptr_t fault_address_ = 0, fault_instruction_ = 0;
  Context main_;
  Stack main_stack_;
};

}  // namespace flash::machine
