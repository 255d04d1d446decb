#include "common/machine/cpu/atomic.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"

#include <atomic>
#include <thread>

// For whoever looks for races: "write, __threadfence, atomic" in one thread and "atomic, __threadfence, read" in another make an order, which
// neither the fence nor the atomic makes alone.
namespace flash {
inline namespace simt {
namespace {

void fence() {
  const machine::sanitizer::Unwatched unwatched;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  machine::Worker& worker = machine::running_worker("__threadfence");
  machine::Thread& self = worker.current();
  worker.observers.acquire(&self.seen);
  worker.observers.release(&self);
  self.fenced = true;
  self.flag_store = nullptr;
}

}  // namespace

void begin_atomic(void* address, bool writes, bool draws) {
  const machine::sanitizer::Unwatched unwatched;
  machine::Worker& worker = machine::running_worker("an atomic");
  ++worker.block.counters.atomics;
  machine::Thread& self = worker.current();
  if (draws) worker.observers.draw(address);
  if (self.fenced && writes) worker.observers.pass_on(&self, address);
  worker.observers.pass_on(address, &self.seen);
}

void finish_acquire(const void* address) {
  const machine::sanitizer::Unwatched unwatched;
  machine::running_worker("an acquire").observers.acquire(const_cast<void*>(address));
}

void begin_release(void* address) {
  const machine::sanitizer::Unwatched unwatched;
  machine::running_worker("a release").observers.release(address);
}

void yield() {
  const machine::sanitizer::Unwatched unwatched;
  std::this_thread::yield();
}

void __threadfence() { fence(); }
void __threadfence_block() { fence(); }
void __threadfence_system() { fence(); }

}  // namespace simt
}  // namespace flash
