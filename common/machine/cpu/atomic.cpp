#include "common/machine/cpu/atomic.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"

#include <atomic>
#include <thread>

namespace flash {
inline namespace simt {
namespace {

void fence(bool in_block) {
  const machine::sanitizer::Unwatched unwatched;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  machine::running_worker("__threadfence").observers.fence(in_block);
}

}  // namespace

void begin_atomic(void* address, bool writes, bool draws) {
  const machine::sanitizer::Unwatched unwatched;
  machine::Worker& worker = machine::running_worker("an atomic");
  ++worker.block.counters.atomics;
  const bool in_block = machine::instruments.in_block;
  if (draws && !in_block) worker.observers.draw(address);
  if (writes) worker.observers.publish(address, in_block);
}

void end_atomic(void* address) {
  const machine::sanitizer::Unwatched unwatched;
  machine::running_worker("an atomic").observers.learn(address, machine::instruments.in_block);
}

AtomicsOfBlock::AtomicsOfBlock() { machine::instruments.in_block = true; }
AtomicsOfBlock::~AtomicsOfBlock() { machine::instruments.in_block = false; }

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

void __threadfence() { fence(false); }
void __threadfence_block() { fence(true); }
void __threadfence_system() { fence(false); }

}  // namespace simt
}  // namespace flash
