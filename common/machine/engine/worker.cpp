#include "common/machine/engine/worker.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/hopper.hpp"
#include "common/machine/engine/limits.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/module.hpp"
#include "common/machine/engine/source_line.hpp"

#include <stdexcept>

namespace flash {
inline namespace simt {

FLASH_MACHINE_VARIABLE constinit thread_local uint3 threadIdx{};
FLASH_MACHINE_VARIABLE constinit thread_local uint3 blockIdx{};
FLASH_MACHINE_VARIABLE constinit thread_local dim3 blockDim{};
FLASH_MACHINE_VARIABLE constinit thread_local dim3 gridDim{};

}  // namespace simt

namespace machine {
namespace {

FLASH_MACHINE_VARIABLE constinit thread_local Worker* this_worker = nullptr;

}  // namespace

Worker::Worker() = default;
Worker::~Worker() = default;

Worker* Worker::running() { return this_worker; }

Worker& running_worker(const char* what) {
  if (this_worker == nullptr) throw std::logic_error(std::string(what) + " is for kernels: it was called outside of one");
  return *this_worker;
}

bool Worker::run(const KernelCall& kernel, const Options& options, std::uint64_t first, std::uint64_t step,
                 const std::function<bool()>& stopped, Grid* grid) {
  if (grid != nullptr) grid->begin(first);
  const struct Turn {
    Grid* grid;
    const Scheduler& scheduler;
    ~Turn() {
      if (grid != nullptr) grid->end(scheduler.failure());
    }
  } turn{grid, scheduler};
  scheduler.start_launch(kernel, options, grid);
  remarked_ = {};
  reach_.start(kernel, scheduler.stacks(), options.host_pointers);  // names tensors, by which the block counts
  block.start_launch(kernel, options);
  observers.start_launch(kernel, options, grid);
  const std::size_t threads = scheduler.threads().size();
  warps_.assign((threads + warpSize - 1) / warpSize, {});
  for (std::size_t i = 0; i < threads; ++i) warps_[i / warpSize].present |= 1u << i % warpSize;
  this_worker = this;
  simt::blockDim = kernel.shape.block;
  simt::gridDim = kernel.shape.grid;
  const std::uint64_t blocks = std::uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  const auto next = [&](std::uint64_t number) { return grid != nullptr ? grid->next_block() : number; };
  for (std::uint64_t number = next(first); number < blocks && !stopped() && scheduler.failure() == nullptr;) {
    run_block(number);
    if (grid != nullptr) grid->block_ends();
    number = next(number + step);
  }
  observers.end_launch(grid);
  reach_.end();
  this_worker = nullptr;
  return scheduler.failure() == nullptr;
}

void Worker::run_block(std::uint64_t number) {
  start_block(number);
  start_instruments();
  scheduler.run();
  end_block();
}

void Worker::start_block(std::uint64_t number) {
  block.start_block(number);
  for (Warp& warp : warps_) warp.waiting = warp.exited = 0;
  at_barrier_ = 0;
  hopper_used_ = false;
  observers.start_block(*block.kernel, number, block.dynamic_shared());
  scheduler.start_block(number, run_thread);
}

void Worker::start_instruments() {
  const Thread& first = current();
  instruments = {};
  instruments.steps_left = first.steps_left;
  instruments.watch = observers.race_detector();
  instruments.looks = instruments.watch != nullptr;
  const auto& [locals, shared_locals, own] = thread_locals();
  if (!instrumented || locals.begin == 0) return;  // not even static shared memory is known
  const auto region = [](const MemoryRange& range) { return Region{range.begin, range.end - range.begin}; };
  instruments.stack = first.stack.region();
  instruments.dynamic = region(block.dynamic_shared());
  instruments.locals = region(locals);
  instruments.machine = region(own);
}

void Worker::end_block() {
  if (scheduler.failure() == nullptr) {
    try {
      check_end();
    } catch (const std::runtime_error&) {
      scheduler.fail(std::current_exception());
    }
  }
  observers.end_block();
  block.count_logged_accesses();
}

/// Throws if threads, or anything asynchronous, left the block as no kernel may.
void Worker::check_end() {
  if (!scheduler.all_exited()) throw stuck();
  if (hopper_used_) hopper_->end_block(block.options.lenient || !block.options.host_pointers);
  if (block.number == 0) check_static_shared(*block.kernel, block.static_use.written(), block.options.target_sm);
}

void Worker::run_thread() {
  Worker& worker = *running();
  worker.scheduler.enter();
  try {
    worker.block.kernel->invoke(worker.block.kernel->call);
    instruments.unwatched = 1;  // the kernel's variables are gone, and what follows may use their place
    worker.thread_exits();
  } catch (...) {
    worker.scheduler.fail(std::current_exception());
  }
  worker.scheduler.exit();
}

void Worker::thread_exits() {
  Thread& self = current();
  if (!self.copies.empty()) {
    simt::fail(RuleId::not_awaited, self.copies.front().site,
               "the thread ends without having waited for its asynchronous copy");
  }
  if (hopper_used_) hopper_->thread_exits(self);
  scheduler.mark_exited();
  warps_[static_cast<std::size_t>(self.warp())].exited |= 1u << self.lane();
  if (block.options.lenient) wait_no_longer();
}

Hopper& Worker::hopper() {
  if (!hopper_used_) {
    if (hopper_ == nullptr) hopper_ = std::make_unique<Hopper>(scheduler, observers, block);
    hopper_->start_block(block.dynamic_shared(), scheduler.threads().size());
    hopper_->proxy.assume_stored();
    hopper_used_ = true;
    instruments.hopper = hopper_.get();
    instruments.looks = true;
  }
  return *hopper_;
}

void Worker::log_is_full(Site site) {
  block.empty_logs();
  scheduler.abandon(RuleId::endless_loop,
                    "more accesses to memory without a barrier than fit into main memory to be counted: an endless loop? at " +
                        (site.line != 0 ? machine::words(site) : machine::words(source_line_of_call(nullptr))));
}

KernelError Worker::stuck() const {
  int elsewhere = 0;
  bool one_site = true, in_warp_operation = false;
  const Thread* first = nullptr;
  std::string never;
  for (const Thread* thread : scheduler.threads()) {
    if (thread->state == State::in_warp_operation && never.empty()) {
      const unsigned missing = thread->request.mask & ~warps_[static_cast<std::size_t>(thread->warp())].waiting;
      if (missing != 0) never = "; the mask also names " + lanes_of(missing) + ", which never come";
    }
    if (thread->state != State::at_barrier) {
      elsewhere += thread->state != State::exited;
      in_warp_operation = in_warp_operation || thread->state == State::in_warp_operation;
      continue;
    }
    if (first == nullptr) first = thread;
    one_site = one_site && thread->site == first->site;
  }
  const char* kind = "deadlock: ";
  if (elsewhere == 0) kind = one_site ? "a barrier that not all threads reach: " : "divergent barrier: ";
  const RuleId rule = elsewhere == 0 ? RuleId::divergent_barrier : in_warp_operation ? RuleId::absent_lane : RuleId::deadlock;
  return {name_of(rule),
          scheduler.place(false) + ": " + kind + waits(scheduler.threads()) + never + (hopper_used_ ? hopper_->missing() : "")};
}

}  // namespace machine
}  // namespace flash
