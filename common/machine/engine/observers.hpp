// Whoever looks at what the threads of a block do: the race detector, the trace.
#pragma once

#include "common/machine/engine/race_detector.hpp"
#include "common/machine/engine/scheduler.hpp"
#include "common/machine/engine/trace.hpp"

#include <initializer_list>
#include <memory>
#include <vector>

namespace flash::machine {

class Observers {
 public:
  explicit Observers(Scheduler& scheduler) : scheduler_(scheduler) {}

  void start_launch(const KernelCall&, const Options&, Grid*);
  void end_launch(const Grid*);
  void start_block(const KernelCall&, std::uint64_t block, MemoryRange dynamic_shared);
  void end_block();

  RaceDetector* race_detector() { return race_detector_.get(); }  ///< null: nobody looks
  /// These threads have met: what each did before lies before what each does from now on.
  void order(const std::vector<Thread*>&);
  // Fences, and atomics and flags, of the running thread; with `in_block` only its block learns of them.
  void fence(bool in_block);
  void publish(void* address, bool in_block);
  void learn(void* address, bool in_block);
  /// What a token orders. Token: the target of an atomic, an mbarrier's phase.
  void release(void* token) {
    if (race_detector_ != nullptr) race_detector_->release(scheduler_.current().number, token);
  }
  void pass_on(void* from, void* token) {  ///< what `from` has got so far
    if (race_detector_ != nullptr) race_detector_->pass_on(from, token);
  }
  void acquire(void* token) {
    if (race_detector_ != nullptr) race_detector_->acquire(scheduler_.current().number, token);
  }
  void draw(void* token) {  ///< an atomic, with no fence so far
    if (race_detector_ != nullptr) race_detector_->draw(scheduler_.current().number, token);
  }
  void wait_for_previous_kernel() {
    if (race_detector_ != nullptr) race_detector_->wait_for_previous_kernel(scheduler_.current().number);
  }
  bool traced() const { return trace_ != nullptr; }
  /// An event of the running thread, or of the block's end (warp -1), for whoever wants to see it.
  void trace(const char* event, std::initializer_list<Trace::Number> numbers, Site site, const char* tensor = nullptr) {
    if (trace_ == nullptr) return;
    const Thread* const self = scheduler_.running();
    trace_->add(event, self == nullptr ? -1 : self->warp(), numbers, site, tensor);
  }

 private:
  Scheduler& scheduler_;
  std::shared_ptr<RaceDetector> race_detector_;
  bool first_block_ = true;  ///< of the launch, on this worker
  Trace* trace_ = nullptr;   ///< null: nobody records the block
};

}  // namespace flash::machine
