// The CUDA threads of a block as fibers: how they start, pass control to each other, end, and are ordered for ThreadSanitizer.
#include "common/base/error.hpp"
#include "common/simt/machine/hopper.hpp"
#include "common/simt/machine/sanitizer.hpp"
#include "common/simt/machine/worker.hpp"
#include "common/simt/thread.hpp"

#include <algorithm>
#include <utility>

#ifdef FLASH_ASAN
// Stacks that survive their functions, an option of AddressSanitizer, would be torn apart by the switches.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }
#endif

namespace flash::machine {

void Worker::run_thread() {
  Worker& worker = *running();
  Stack from;
  sanitizer::finish_switch(&from);
  if (worker.main_stack_.bottom == nullptr) worker.main_stack_ = from;  // main started the first thread of the block
  try {
    worker.kernel_->invoke(worker.kernel_->call);
#ifndef FLASH_TSAN
    instruments.unwatched = 1;  // the kernel's variables are gone, and what follows may use their place
#endif
    worker.thread_exits();
  } catch (...) {
    worker.failure_ = std::current_exception();
  }
  if (worker.failure_ != nullptr) worker.leave_block();
  Thread* const next = worker.next_ready();
  if (next == nullptr) worker.leave_block();
  worker.resume(*next);
  __builtin_unreachable();  // nobody resumes a thread that has exited
}

void Worker::thread_exits() {
  Thread& self = *current_;
  if (!self.copies.empty()) {
    simt::fail(self.copies.front().site, "the thread ends without having waited for its asynchronous copy");
  }
  if (hopper_used_) hopper_->thread_exits(self);
  self.state = State::exited;
  ++exited_;
  warps_[static_cast<std::size_t>(self.warp())].exited |= 1u << self.lane();
}

void Worker::suspend() {
  sanitizer::watch_again();  // it may never come back here
  Thread* const next = next_ready();
  if (next == nullptr) leave_block();   // every thread waits or has exited: stuck
  if (next != current_) resume(*next);  // something asynchronous may have woken the very one
  sanitizer::stop_watching();
}

void Worker::resume(Thread& next) {
  Thread& self = *current_;
  current_ = &next;
  simt::threadIdx = next.index;
  self.steps_left = instruments.steps_left;
  instruments.steps_left = next.steps_left;
  self.unwatched = instruments.unwatched;
  instruments.unwatched = next.unwatched;
  if (instruments.locals.begin != 0) instruments.stack = next.stack.region();
  sanitizer::start_switch(next.stack);
  sanitizer::switch_fiber(next.fiber);
  switch_context(self.context, next.context);
  sanitizer::finish_switch();
}

void Worker::leave_block() {
  sanitizer::start_switch(main_stack_);
  sanitizer::switch_fiber(main_fiber_);
  Context abandoned;
  switch_context(abandoned, main_);
  __builtin_unreachable();
}

void Worker::abandon(const std::string& message) {
  {
    const sanitizer::Unwatched unwatched;
    failure_ = std::make_exception_ptr(KernelError(place(true) + ": " + message));
  }
  leave_block();
}

void Worker::abandon(Fault fault, const void* address, const void* instruction) {
  fault_ = fault;
  fault_address_ = reinterpret_cast<std::uintptr_t>(address);
  fault_instruction_ = reinterpret_cast<std::uintptr_t>(instruction);
  leave_block();
}

void Worker::make_ready(const std::vector<Thread*>& threads) {
  const auto first = static_cast<std::ptrdiff_t>(ready_.size());
  // No insert(): it calls memmove, which ThreadSanitizer would take for an access of the kernel.
  for (Thread* thread : threads) ready_.push_back(thread);
  if (options_.order == Order::forward) std::reverse(ready_.begin() + first, ready_.end());  // the last one goes first
}

Thread* Worker::next_ready() {
  while (ready_.empty() && hopper_used_ && !hopper_->due.empty() && exited_ < everyone_.size()) happen();
  if (ready_.empty()) return nullptr;
  if (options_.order == Order::random) std::swap(ready_[random_() % ready_.size()], ready_.back());
  if (options_.schedule != nullptr && ready_.size() > 1) follow_schedule();
  Thread* const next = ready_.back();
  ready_.pop_back();
  return next;
}

void Worker::follow_schedule() {
  const Thread* const usual = ready_.back();
  const auto taken = std::ranges::find(ready_, options_.schedule->take(usual->number), &Thread::number);
  if (taken == ready_.end() || *taken == usual) return;
  std::rotate(taken, taken + 1, ready_.end());
  const Thread& next = *ready_.back();
  options_.schedule->add({{}, kernel_->name, simt::blockIdx, next.index, usual->index, next.site, usual->site});
}

/// No thread can go on: time for something asynchronous.
void Worker::happen() {
  sanitizer::stop_watching();
  Thread* const before = current_;
  {
    auto& due = hopper_->due;
    auto end = due.end();
    if (options_.watch)
      end = std::stable_partition(due.begin(), due.end(), [&](const auto& d) { return hopper_->is_urgent(d); });
    const std::ptrdiff_t count = (end == due.begin() ? due.end() : end) - due.begin();
    std::ptrdiff_t chosen = 0;
    if (options_.order == Order::reverse) chosen = count - 1;
    if (options_.order == Order::random) chosen = static_cast<std::ptrdiff_t>(random_() % static_cast<std::uint64_t>(count));
    if (options_.schedule != nullptr && count > 1) {
      const int taken = options_.schedule->take(static_cast<int>(chosen));
      if (taken != chosen && taken >= 0 && taken < count) {
        const auto issuer = [&](std::ptrdiff_t i) { return due[static_cast<std::size_t>(i)].thread->index; };
        options_.schedule->add({{}, kernel_->name, simt::blockIdx, issuer(taken), issuer(chosen), {}, {}, true});
        chosen = taken;
      }
    }
    const Hopper::Due next = std::move(due[static_cast<std::size_t>(chosen)]);
    due.erase(due.begin() + chosen);
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
  sanitizer::watch_again();  // what is here may be left for good
  if (failure_ != nullptr) leave_block();
}

void Worker::park(State state, Site site) {
  current_->state = state;
  current_->site = site;
  suspend();
}

void Worker::wake(const std::vector<Thread*>& threads) {
  for (Thread* thread : threads) thread->state = State::ready;
  make_ready(threads);
}

// A thread that was abandoned stays for ever in the calls, or the signal handler, that it was in.
void Worker::renew_fiber(Thread& thread) {
  if (thread.fiber == nullptr) return;
  sanitizer::destroy_fiber(thread.fiber);
  thread.fiber = sanitizer::create_fiber();
}

void Worker::order(const std::vector<Thread*>& threads, [[maybe_unused]] void* token) {
  if (watch_ != nullptr) {
    if (threads.size() == everyone_.size()) {
      watch_->barrier();
    } else {
      std::vector<int> numbers;
      for (const Thread* thread : threads) numbers.push_back(thread->number);
      watch_->meet(numbers);
    }
  }
#ifdef FLASH_TSAN
  void* const self = sanitizer::current_fiber();
  for (Thread* thread : threads) {
    sanitizer::switch_fiber(thread->fiber);
    sanitizer::release(token);
  }
  for (Thread* thread : threads) {
    sanitizer::switch_fiber(thread->fiber);
    sanitizer::acquire(token);
  }
  sanitizer::switch_fiber(self);
#endif
}

void Worker::release(void* token) {
  sanitizer::release(token);
  if (watch_ != nullptr) watch_->release(current_->number, token);
}

void Worker::acquire(void* token) {
  sanitizer::acquire(token);
  if (watch_ != nullptr) watch_->acquire(current_->number, token);
}

// What the launching thread did comes before the block; what the block did comes before what follows on this thread.
void Worker::order_with_main(bool begin) {
#ifdef FLASH_TSAN
  if (begin) sanitizer::release(&main_);
  for (Thread* thread : everyone_) {
    sanitizer::switch_fiber(thread->fiber);
    begin ? sanitizer::acquire(&main_) : sanitizer::release(&main_);
  }
  sanitizer::switch_fiber(main_fiber_);
  if (!begin) sanitizer::acquire(&main_);
#else
  (void)begin;
#endif
}

}  // namespace flash::machine
