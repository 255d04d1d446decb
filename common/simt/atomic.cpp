#include "common/simt/atomic.hpp"

#include "common/simt/machine/sanitizer.hpp"
#include "common/simt/machine/worker.hpp"
#include "common/simt/thread.hpp"

#include <atomic>

// For ThreadSanitizer: "write, __threadfence, atomic" in one thread and "atomic, __threadfence, read" in another make an order, which
// neither the fence nor the atomic makes alone.
namespace flash {
inline namespace simt {
namespace {

void fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  machine::Thread& self = machine::running_worker("__threadfence").current();
  self.fenced = true;
  if (self.last_atomic != nullptr) machine::sanitizer::acquire(self.last_atomic);
}

}  // namespace

void begin_atomic(void* address) {
  machine::Worker& worker = machine::running_worker("an atomic");
  ++worker.counters().atomics;
  machine::Thread& self = worker.current();
  if (self.fenced) machine::sanitizer::release(address);
  self.last_atomic = address;
}

void __threadfence() { fence(); }
void __threadfence_block() { fence(); }
void __threadfence_system() { fence(); }

}  // namespace simt
}  // namespace flash
