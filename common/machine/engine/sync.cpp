// Barriers and warp operations: whoever comes last does the work for all and wakes them.
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/hopper.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/race_detector.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/tensor_core.hpp"
#include "common/machine/engine/worker.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

namespace flash {
namespace machine {

std::uint64_t Worker::barrier(BarrierKind kind, int predicate, Site site, const CallPlace& from) {
  const sanitizer::Unwatched unwatched;
  Thread& self = current();
  self.state = State::at_barrier;
  self.barrier = kind;
  self.site = site;
  self.called = from;
  self.result = predicate != 0;
  scheduler.count_steps(barrier_steps, site);
  if (++at_barrier_ < awaited_at_barrier()) {
    scheduler.suspend();
  } else {
    complete_barrier();
  }
  return self.result;
}

int Worker::awaited_at_barrier() const {
  return static_cast<int>(scheduler.threads().size() - (block.options.lenient ? scheduler.exited() : 0));
}

void Worker::complete_barrier() {
  const Thread* first = nullptr;  // and, if warps may come to different calls, the first of its warp
  std::uint64_t count = 0, arrived = 0;
  const char* apart = nullptr;  // why hardware does not notice that the block is
  for (const Thread* thread : scheduler.threads()) {
    if (thread->state != State::at_barrier) continue;  // has exited
    if (first != nullptr && thread->barrier == first->barrier && thread->warp() != first->warp() && block.options.lenient)
      first = thread;
    if (first == nullptr) first = thread;
    if (thread->site != first->site || thread->barrier != first->barrier) {
      const char* const why = thread->warp() == first->warp() ? ", where lanes of one warp wait for each other forever" : "";
      simt::fail(RuleId::divergent_barrier, current().site,
                 std::string("divergent barrier") + why + ": " + waits(scheduler.threads()));
    }
    count += thread->result;
    ++arrived;
  }
  RaceDetector* const watch = observers.race_detector();
  for (const Thread* thread : scheduler.threads()) {
    const bool here = thread->site == first->site;
    if (thread->state != State::exited && !here) {
      apart = "count who comes to any of them, as long as a warp stays together";
    } else if (thread->state == State::exited &&
               (here || (watch != nullptr && watch->was_busy(thread->number)))) {  // not left early
      apart = "take a thread that has ended for one that has come, unless the compiler has its warp wait for it";
    }
  }
  if (apart != nullptr && first->site != std::exchange(remarked_, first->site)) remark_apart(apart);
  released_.clear();
  for (Thread* thread : scheduler.threads()) {
    if (thread->state != State::at_barrier) continue;
    switch (first->barrier) {
      case BarrierKind::plain:
        break;
      case BarrierKind::count:
        thread->result = count;
        break;
      case BarrierKind::all:
        thread->result = count == arrived;
        break;
      case BarrierKind::any:
        thread->result = count != 0;
        break;
    }
    thread->state = State::ready;
    if (thread != &current()) released_.push_back(thread);
  }
  at_barrier_ = 0;
  if (hopper_used_) hopper_->mbarriers.synchronised();
  ++block.counters.barriers;
  observers.trace("syncthreads", {{"number", static_cast<std::int64_t>(block.counters.barriers)}}, first->site);
  if (block.options.count) block.count_logged_accesses();
  observers.order(scheduler.threads());
  scheduler.make_ready(released_);
}

void Worker::remark_apart(const char* why) const {
  std::set<std::string> lines;
  for (const Thread* thread : scheduler.threads())
    if (thread->state == State::at_barrier) lines.insert(words(thread->site));
  add_remark(
      {block.kernel->name,
       {lines.begin(), lines.end()},
       "undefined in CUDA, where all threads of a block must come to the same __syncthreads(), though GPUs since Volta " +
           std::string(why) + ": " + waits(scheduler.threads())});
}

/// Of the lanes that the mask names, those that hardware waits for. What works on a whole warp needs them all.
unsigned Worker::awaited(const Warp& warp, const WarpRequest& request) const {
  const bool whole = request.operation == WarpOperation::ldmatrix || request.operation == WarpOperation::stmatrix ||
                     request.operation == WarpOperation::mma;
  return block.options.lenient && !whole ? request.mask & warp.present & ~warp.exited : request.mask;
}

std::uint64_t Worker::warp_operation(const WarpRequest& request, Site site, const CallPlace& from) {
  const sanitizer::Unwatched unwatched;
  Thread& self = current();
  Warp& warp = warps_[static_cast<std::size_t>(self.warp())];
  const unsigned mask = awaited(warp, request);
  const auto refuse = [&](const std::string& why) {
    simt::fail(RuleId::absent_lane, site, std::string(name_of(request.operation)) + ": " + why);
  };
  if ((mask >> self.lane() & 1u) == 0) {
    refuse(request.mask == 0
               ? "called with mask 0, which names no lane; the mask is the first argument"
               : "lane " + std::to_string(self.lane()) + " calls it with a mask that names only " + lanes_of(request.mask));
  }
  if ((mask & ~warp.present) != 0) {
    std::array<char, 64> fits{};
    if (request.operation == WarpOperation::syncwarp && request.mask == 0xffffffffu)
      std::snprintf(fits.data(), fits.size(), "; it is the default, and __syncwarp(0x%x) fits,", warp.present);
    refuse("the mask names " + lanes_of(mask & ~warp.present) + ", which the block of " +
           std::to_string(scheduler.threads().size()) + " threads does not have" + fits.data());
  }
  if ((mask & warp.exited) != 0) refuse("the mask names " + lanes_of(mask & warp.exited) + ", which exited before");

  scheduler.count_steps(warp_operation_steps, site);
  self.state = State::in_warp_operation;
  self.request = request;
  self.site = site;
  self.called = from;
  warp.waiting |= 1u << self.lane();
  if (!complete_warp_operation(warp, self)) scheduler.suspend();
  return self.result;
}

/// The one that `thread` waits in, if all have come.
bool Worker::complete_warp_operation(Warp& warp, const Thread& thread) {
  const unsigned mask = awaited(warp, thread.request);
  if ((warp.waiting & mask) != mask) return false;
  const Site site = thread.site;
  lanes_.clear();
  for (unsigned rest = mask; rest != 0; rest &= rest - 1)
    lanes_.push_back(scheduler.threads()[static_cast<std::size_t>(thread.number - thread.lane() + std::countr_zero(rest))]);
  if (std::ranges::any_of(lanes_, [&](const Thread* lane) { return lane->request.mask != thread.request.mask; })) return false;
  const WarpOperation operation = lanes_.front()->request.operation;
  for (const Thread* lane : lanes_) {
    if (lane->request.operation != operation) {
      simt::fail(RuleId::absent_lane, site, "lanes of one warp meet in different operations: " + waits(lanes_));
    }
  }
  if (operation == WarpOperation::syncwarp) {
    observers.order(lanes_);
  } else if (operation == WarpOperation::ldmatrix || operation == WarpOperation::stmatrix || operation == WarpOperation::mma) {
    tensor_core(operation);
  } else if (operation == WarpOperation::elect) {
    const std::size_t elected = scheduler.choose(lanes_.size());
    for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->result = i == elected;
  } else {
    compute(operation, lanes_, block.options.lenient);
  }
  ++block.counters.warp_operations;
  released_.clear();
  for (Thread* lane : lanes_) {
    lane->state = State::ready;
    warp.waiting &= ~(1u << lane->lane());
    if (lane != &current()) released_.push_back(lane);
  }
  scheduler.make_ready(released_);
  return true;
}

/// Who waits for the running thread no longer has to: it has exited.
void Worker::wait_no_longer() {
  if (at_barrier_ > 0 && at_barrier_ == awaited_at_barrier()) complete_barrier();
  Warp& warp = warps_[static_cast<std::size_t>(current().warp())];
  for (int lane = 0; lane < warpSize; ++lane) {
    if ((warp.waiting >> lane & 1u) != 0)
      complete_warp_operation(warp, *scheduler.threads()[static_cast<std::size_t>(current().warp() * warpSize + lane)]);
  }
}

void Worker::tensor_core(WarpOperation operation) {
  std::array<Site, 32> sites;
  std::array<LdmatrixLane*, 32> ldmatrix_lanes;
  std::array<MmaLane*, 32> mma_lanes;
  for (std::size_t i = 0; i < 32; ++i) {
    sites[i] = lanes_[i]->site;
    ldmatrix_lanes[i] = reinterpret_cast<LdmatrixLane*>(lanes_[i]->request.value);
    mma_lanes[i] = reinterpret_cast<MmaLane*>(lanes_[i]->request.value);
  }
  if (operation == WarpOperation::mma) {
    block.counters.tensor_core_products += mma(mma_lanes, sites);
  } else {
    block.counters.bank_conflicts += ldmatrix(name_of(operation), ldmatrix_lanes, sites);
  }
}

}  // namespace machine

inline namespace simt {

using machine::BarrierKind;
using machine::running_worker;

void __syncthreads(Site site) { running_worker("__syncthreads").barrier(BarrierKind::plain, 0, site, FLASH_CALLED_FROM); }
int __syncthreads_count(int predicate, Site site) {
  return static_cast<int>(
      running_worker("__syncthreads_count").barrier(BarrierKind::count, predicate, site, FLASH_CALLED_FROM));
}
int __syncthreads_and(int predicate, Site site) {
  return static_cast<int>(running_worker("__syncthreads_and").barrier(BarrierKind::all, predicate, site, FLASH_CALLED_FROM));
}
int __syncthreads_or(int predicate, Site site) {
  return static_cast<int>(running_worker("__syncthreads_or").barrier(BarrierKind::any, predicate, site, FLASH_CALLED_FROM));
}

void __syncwarp(unsigned mask, Site site) {
  running_worker("__syncwarp").warp_operation({WarpOperation::syncwarp, mask}, site, FLASH_CALLED_FROM);
}

std::uint64_t warp_operation(const WarpRequest& request, Site site) {
  return running_worker(machine::name_of(request.operation)).warp_operation(request, site, FLASH_CALLED_FROM);
}

}  // namespace simt
}  // namespace flash
