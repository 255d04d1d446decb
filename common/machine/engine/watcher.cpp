#include "common/machine/engine/watcher.hpp"

#include "common/machine/engine/module.hpp"
#include "common/machine/engine/sanitizer.hpp"

namespace flash::machine {

void Watcher::start_launch(const KernelCall& kernel, bool watch) {
  watch_.reset();
  if (watch) watch_ = std::make_unique<Watch>(kernel.name, kernel.shape.grid, kernel.shape.block, device_memory());
}

void Watcher::end_launch() {
  if (watch_ != nullptr) add_findings(*watch_);
}

void Watcher::start_block(const KernelCall& kernel, std::uint64_t block, MemoryRange dynamic_shared) {
  if (watch_ != nullptr) {
    const auto& [locals, shared_locals, own] = thread_locals();
    watch_->start_block(block, dynamic_shared, locals.begin != 0 ? locals : shared_locals);
    watch_->assume_written(own.begin, own.end - own.begin);
  }
  trace_ = block == 0 ? Trace::start_block(kernel) : nullptr;
}

void Watcher::end_block() {
  if (trace_ != nullptr) trace_->end_block();
}

void Watcher::order(const std::vector<Thread*>& threads, [[maybe_unused]] void* token) {
  if (watch_ != nullptr) {
    if (threads.size() == scheduler_.threads().size()) {
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

void Watcher::release(void* token) {
  sanitizer::release(token);
  if (watch_ != nullptr) watch_->release(scheduler_.current().number, token);
}

void Watcher::acquire(void* token) {
  sanitizer::acquire(token);
  if (watch_ != nullptr) watch_->acquire(scheduler_.current().number, token);
}

}  // namespace flash::machine
