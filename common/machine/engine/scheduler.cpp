#include "common/machine/engine/scheduler.hpp"

#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/reach.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/shared_memory.hpp"
#include "common/machine/engine/source_line.hpp"
#include "common/machine/error.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#ifdef FLASH_ASAN
// Stacks that survive their functions, an option of AddressSanitizer, would be torn apart by the switches.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }
#endif

namespace flash::machine {
namespace {

constexpr std::size_t frame_bytes = 8192;  // of a kernel and what it calls
constexpr std::int64_t share_of_steps = 1 << 20, share_among_blocks = 1 << 10;

/// Of this operating-system thread, in seconds.
double processor_time() {
  timespec now{};
#ifdef __EMSCRIPTEN__
  clock_gettime(CLOCK_MONOTONIC, &now);
#else
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
#endif
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

const char* rule_of(Scheduler::Fault fault) {
  using Fault = Scheduler::Fault;
  return name_of(fault == Fault::stack_overflow ? RuleId::stack_overflow
                 : fault == Fault::bad_address  ? RuleId::bad_address
                                                : RuleId::endless_loop);
}

}  // namespace

void Scheduler::start_launch(const KernelCall& kernel, const Options& options, Grid* grid) {
  kernel_ = &kernel;
  grid_ = grid;
  options_ = options;
  failure_ = nullptr;
  const dim3 block = kernel.shape.block;
  const unsigned count = block.x * block.y * block.z;
  stacks_.reserve(static_cast<int>(count));
  while (all_.size() < count) all_.emplace_back();
  threads_.clear();
  for (unsigned n = 0; n < count; ++n) {
    Thread& thread = all_[n];
    thread.number = static_cast<int>(n);
    thread.index = {n % block.x, n / block.x % block.y, n / block.x / block.y};
    thread.stack = stacks_[thread.number];
    threads_.push_back(&thread);
  }
}

void Scheduler::start_block(std::uint64_t block, void (*entry)()) {
  block_ = block;
  random_.seed(options_.seed * 0x9E3779B97F4A7C15u + block);
  for (Thread* thread : threads_) {
    thread->state = State::ready;
    thread->site = {};
    thread->copies.clear();
    thread->groups = 0;
    thread->fenced = thread->fenced_block = thread->published = false;
    thread->steps_left = std::min(options_.steps, share());
    thread->store = options_.steps - thread->steps_left;
    thread->waits_for = 0;
    thread->unwatched = 0;
    sanitizer::unpoison(thread->stack.bottom, thread->stack.bytes);
    // Local variables that no one has written hold what no result survives in all threads: NaN, a number near the largest, one near the smallest.
    constexpr std::array patterns{0xff, 0x7f, 0xfe};
    std::memset(thread->stack.bottom + thread->stack.bytes - frame_bytes, patterns[thread->index.x % patterns.size()],
                frame_bytes);
    prepare_context(thread->context, thread->stack.bottom, thread->stack.bytes, entry);
  }
  exited_ = 0;
  block_began_ = processor_time();
  move();
  due_.clear();
  ready_.clear();
  make_ready(threads_);
  current_ = next_ready();
  simt::threadIdx = current_->index;
}

void Scheduler::run() {
  main_stack_ = {};
  sanitizer::start_switch(current_->stack);
  switch_context(main_, current_->context);
  sanitizer::finish_switch();
  reset_instruments();
  if (fault_ != Fault::none)
    failure_ = std::make_exception_ptr(KernelError(rule_of(fault_), place(true) + ": " + message(fault_)));
  fault_ = Fault::none;
  current_ = nullptr;
}

void Scheduler::enter() {
  Stack from;
  sanitizer::finish_switch(&from);
  if (main_stack_.bottom == nullptr) main_stack_ = from;  // main started the first thread of the block
}

void Scheduler::exit() {
  if (failure_ != nullptr) leave_block();
  move();
  Thread* const next = next_ready();
  if (next == nullptr) leave_block();
  resume(*next);
  __builtin_unreachable();  // nobody resumes a thread that has exited
}

void Scheduler::mark_exited() {
  current_->state = State::exited;
  ++exited_;
}

void Scheduler::suspend() {
  move();
  Thread* const next = next_ready();
  if (next == nullptr) leave_block();   // every thread waits or has exited: stuck
  if (next != current_) resume(*next);  // something asynchronous may have woken the very one
}

void Scheduler::yield() {
  ready_.insert(ready_.begin(), current_);
  suspend();
}

void Scheduler::resume(Thread& next) {
  Thread& self = *current_;
  current_ = &next;
  simt::threadIdx = next.index;
  self.steps_left = instruments.steps_left;
  instruments.steps_left = next.steps_left;
  self.unwatched = instruments.unwatched;
  instruments.unwatched = next.unwatched;
  if (instruments.locals.begin != 0) instruments.stack = next.stack.region();
  sanitizer::start_switch(next.stack);
  switch_context(self.context, next.context);
  sanitizer::finish_switch();
}

void Scheduler::leave_block() {
  sanitizer::start_switch(main_stack_);
  switch_context(current_->context, main_);
  __builtin_unreachable();
}

void Scheduler::abandon(RuleId rule, const std::string& message) {
  {
    const sanitizer::Unwatched unwatched;
    failure_ = std::make_exception_ptr(KernelError(name_of(rule), place(true) + ": " + message));
  }
  leave_block();
}

void Scheduler::abandon(Fault fault, const void* address, const void* instruction) {
  fault_ = fault;
  fault_address_ = reinterpret_cast<std::uintptr_t>(address);
  fault_instruction_ = reinterpret_cast<std::uintptr_t>(instruction);
  leave_block();
}

void Scheduler::make_ready(const std::vector<Thread*>& threads) {
  const auto first = static_cast<std::ptrdiff_t>(ready_.size());
  ready_.insert(ready_.end(), threads.begin(), threads.end());
  if (options_.order == Order::forward) std::reverse(ready_.begin() + first, ready_.end());  // the last one goes first
}

std::size_t Scheduler::choose(std::size_t count) {
  if (options_.order == Order::random) return random_() % count;
  return options_.order == Order::reverse ? count - 1 : 0;
}

Thread* Scheduler::next_ready() {
  while (ready_.empty() && !due_.empty() && exited_ < threads_.size()) happen();
  if (ready_.empty()) return nullptr;
  if (options_.order == Order::random) std::swap(ready_[random_() % ready_.size()], ready_.back());
  Thread* const next = ready_.back();
  ready_.pop_back();
  return next;
}

/// No thread can go on: time for something asynchronous.
void Scheduler::happen() {
  Thread* const before = current_;
  {
    auto end = due_.end();
    if (options_.watch) {
      end = std::stable_partition(due_.begin(), due_.end(), [](const Due& each) { return !each.urgent || each.urgent(); });
    }
    const std::ptrdiff_t count = (end == due_.begin() ? due_.end() : end) - due_.begin();
    const std::size_t chosen = choose(static_cast<std::size_t>(count));
    const Due next = std::move(due_[chosen]);
    due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(chosen));
    current_ = next.thread;
    simt::threadIdx = current_->index;
    try {
      next.happen();
    } catch (const KernelError&) {
      failure_ = std::current_exception();
    }
  }
  current_ = before;
  simt::threadIdx = current_->index;
  if (failure_ != nullptr) leave_block();
}

void Scheduler::park(const char* call, Site site) {
  current_->state = State::parked;
  current_->parked_in = call;
  current_->site = site;
  suspend();
}

void Scheduler::wake(const std::vector<Thread*>& threads) {
  for (Thread* thread : threads) thread->state = State::ready;
  make_ready(threads);
}

std::string Scheduler::message(Fault fault) const {
  const std::string line = words(source_line({.address = fault_instruction_ + 1}));
  switch (fault) {
    case Fault::stack_overflow:
      return "its local variables and calls need more than the " + std::to_string(current_->stack.bytes / 1024) +
             " KiB of a simulated thread's stack (large arrays in registers, or a recursion) at " + line;
    case Fault::bad_address:
      return "there is no memory at address " + hexadecimal(fault_address_) + far_from_parameters(fault_address_, *kernel_) +
             " at " + line;
    default:
      return "it has done nothing but compute for seconds, with no access to memory and no barrier: an endless loop? at " +
             line;
  }
}

bool Scheduler::take_share() {
  stock_ = {};
  if (current_->waits_for != 0) {  // it costs none to look again
    instruments.steps_left = 0;
    return true;
  }
  if (!has_time()) return false;
  instruments.steps_left = current_->store > 0 ? std::min(current_->store, share()) : share();
  current_->store = std::max<std::int64_t>(current_->store - share(), 0);
  return true;
}

std::int64_t Scheduler::share() const {
  return grid_ == nullptr || grid_->workers() == 1 ? share_of_steps : share_among_blocks;
}

/// A thread that has used up its steps may go on while the block has time left.
bool Scheduler::has_time() const {
  return current_->store > 0 || (options_.seconds > 0 && processor_time() - block_began_ < options_.seconds);
}

void Scheduler::take_stock(std::uintptr_t address, std::size_t bytes, AccessKind kind, const void* from) {
  const sanitizer::Unwatched unwatched;
  Thread& self = *current_;
  if (stock_.thread != &self) stock_ = {};
  stock_.thread = &self;
  if (!instruments.stack.holds(address) && !instruments.machine.holds(address)) {
    const bool known = std::ranges::find(stock_.places, address) != stock_.places.end();
    if (kind == AccessKind::write || (!known && stock_.places.size() == 4)) {
      stock_.gets_on = true;
    } else if (!known) {
      stock_.places.push_back(address);
    }
  }
  if (++stock_.accesses < (self.waits_for != 0 ? 64 : 256)) return;
  const bool waits = !stock_.gets_on && !stock_.places.empty();
  const std::uintptr_t awaited = waits ? *std::min_element(stock_.places.begin(), stock_.places.end()) : 0;
  if (!waits || awaited != std::exchange(self.waits_for, awaited)) move();
  if (!has_time()) no_steps_left(from);
  if (waits) let_others_run(awaited, bytes, from);
  take_share();
}

/// The thread gets its next turn after all others that are ready; once each of them waits in a loop, after other blocks.
void Scheduler::let_others_run(std::uintptr_t awaited, std::size_t bytes, const void* from) {
  ready_.insert(ready_.begin(), current_);
  if (++idle_turns_ > ready_.size()) {
    const bool due = !due_.empty();
    if (due) happen();
    idle_turns_ = 0;
    const bool moved = std::exchange(moved_, due);
    const bool others = grid_ != nullptr && grid_->yield(moved);
    const auto now = std::chrono::steady_clock::now();
    if (moved || others) idle_since_ = now;
    if ((grid_ != nullptr && grid_->failure != nullptr) || now - idle_since_ > std::chrono::seconds(options_.watch ? 3 : 30)) {
      std::string memory =
          instruments.dynamic.holds(awaited)
              ? "element " + std::to_string((awaited - instruments.dynamic.begin) / bytes) + " of dynamic shared memory"
              : place_near(awaited, bytes);
      if (memory.empty()) memory = static_shared_words(awaited, bytes);
      instruments = {};
      abandon(RuleId::deadlock, "waits in a loop until another thread changes " + memory + "; none of those that run does" +
                                    (grid_ != nullptr ? grid_->without_room() : "") + "; at " +
                                    machine::words(source_line_of_call(from)));
    }
  }
  Thread* const next = next_ready();
  if (next != current_) resume(*next);
}

void Scheduler::no_steps_left(Site site) {
  instruments = {};  // the linker may have taken a kernel file's std::string for ours: it counts its steps, too
  abandon(RuleId::endless_loop, endless(machine::words(site)));
}

void Scheduler::no_steps_left(const void* from) {
  instruments = {};
  abandon(RuleId::endless_loop, endless(machine::words(source_line_of_call(from))));
}

std::string Scheduler::endless(const std::string& line) const {
  return "still running after " + std::to_string(options_.steps) + " steps (accesses to memory; a barrier counts as " +
         std::to_string(barrier_steps) + ")" +
         (options_.seconds > 0 ? " and " + std::to_string(options_.seconds) + " seconds"
                               : ": an endless loop? FLASH_SIMT_STEPS raises the limit;") +
         " at " + line;
}

std::string Scheduler::place(bool with_thread) const {
  std::string text = "kernel " + std::string(kernel_->name) + ", block " + machine::words(simt::blockIdx);
  if (with_thread && current_ != nullptr) text += ", thread " + machine::words(current_->index);
  return text;
}

}  // namespace flash::machine
