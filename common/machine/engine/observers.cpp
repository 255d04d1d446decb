#include "common/machine/engine/observers.hpp"

#include "common/machine/engine/module.hpp"
#include "common/machine/engine/shared_memory.hpp"

#include <utility>

namespace flash::machine {

void Observers::start_launch(const KernelCall& kernel, const Options& options, Grid* grid) {
  race_detector_ = grid != nullptr ? grid->race_detector : nullptr;
  first_block_ = true;
  if (!options.watch || race_detector_ != nullptr) return;
  std::vector<Allocation> device = device_memory();
  if (!simt::findings().complete) {  // some writes were not seen
    for (Allocation& allocation : device) allocation.poisoned = false;
  }
  race_detector_ = std::make_shared<RaceDetector>(kernel, options, std::move(device));
  if (grid != nullptr) grid->race_detector = race_detector_;
}

void Observers::end_launch(const Grid* grid) {
  if (race_detector_ != nullptr && (grid == nullptr || grid->is_last())) add_findings(*race_detector_);
}

void Observers::start_block(const KernelCall& kernel, std::uint64_t block, MemoryRange dynamic_shared) {
  if (race_detector_ != nullptr) {
    const auto& [locals, shared_locals, own] = thread_locals();
    race_detector_->start_block(block, dynamic_shared, locals.begin != 0 ? locals : shared_locals);
    if (std::exchange(first_block_, false) && locals.begin != 0) race_detector_->ignore(unwatched_variables());
  }
  trace_ = block == 0 ? Trace::start_block(kernel) : nullptr;
}

void Observers::end_block() {
  if (race_detector_ != nullptr) race_detector_->end_block();
  if (trace_ != nullptr) trace_->end_block();
}

void Observers::order(const std::vector<Thread*>& threads) {
  if (race_detector_ == nullptr) return;
  if (threads.size() == scheduler_.threads().size()) {
    race_detector_->barrier();
  } else {
    std::vector<int> numbers;
    for (const Thread* thread : threads) numbers.push_back(thread->number);
    race_detector_->meet(numbers);
  }
}

namespace {

/// The token of an address for the threads of one block.
void* in_own_block(void* address) { return reinterpret_cast<void*>(~reinterpret_cast<std::uintptr_t>(address)); }

}  // namespace

// "write, fence, atomic" in one thread and "atomic, fence, read" in another make an order, which neither fence nor atomic makes alone.
void Observers::fence(bool in_block) {
  Thread& self = scheduler_.current();
  // Whoever waits in a loop for what it has published may go on already, before it publishes more.
  if (std::exchange(self.published, false) && race_detector_ != nullptr) scheduler_.yield();
  acquire(&self.seen_block);
  if (!in_block) acquire(&self.seen);
  release(in_block ? &self.fenced_block : &self.fenced);
  (in_block ? self.fenced_block : self.fenced) = true;
  self.flag_store = nullptr;
}

void Observers::publish(void* address, bool in_block) {
  Thread& self = scheduler_.current();
  self.published = self.fenced || self.fenced_block;
  if (self.fenced && !in_block) pass_on(&self.fenced, address);
  if (self.fenced) pass_on(&self.fenced, in_own_block(address));
  if (self.fenced_block) pass_on(&self.fenced_block, in_own_block(address));
}

void Observers::learn(void* address, bool in_block) {
  Thread& self = scheduler_.current();
  if (!in_block) pass_on(address, &self.seen);
  pass_on(in_own_block(address), &self.seen_block);
}

}  // namespace flash::machine
