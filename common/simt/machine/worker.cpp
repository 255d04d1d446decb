#include "common/simt/machine/worker.hpp"
#include "common/base/error.hpp"
#include "common/simt/machine/hopper.hpp"
#include "common/simt/machine/limits.hpp"
#include "common/simt/machine/module.hpp"
#include "common/simt/machine/names.hpp"
#include "common/simt/machine/sanitizer.hpp"
#include "common/simt/machine/source_line.hpp"
#include "common/simt/shared_view.hpp"
#include "common/simt/thread.hpp"

#include <algorithm>
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

Worker::~Worker() {
  for (Thread& thread : threads_) {
    if (thread.fiber != nullptr) sanitizer::destroy_fiber(thread.fiber);
  }
}

Worker* Worker::running() { return this_worker; }

Worker& running_worker(const char* what) {
  if (this_worker == nullptr) throw std::logic_error(std::string(what) + " is for kernels: it was called outside of one");
  return *this_worker;
}

void Worker::prepare(const KernelCall& kernel) {
  kernel_ = &kernel;
  failure_ = nullptr;
  counters_ = {};
  watch_.reset();
  if (options_.watch) watch_ = std::make_unique<Watch>(kernel.name, kernel.shape.grid, kernel.shape.block, device_memory());
  traffic_.assign(static_cast<std::size_t>(traffic_ids()), {});
  const dim3 block = kernel.shape.block;
  const int count = static_cast<int>(block.x * block.y * block.z);
  stacks_.reserve(count);
  while (static_cast<int>(threads_.size()) < count) {
    threads_.emplace_back();
    threads_.back().fiber = sanitizer::create_fiber();
  }
  everyone_.clear();
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    thread.number = i;
    thread.index = {n % block.x, n / block.x % block.y, n / block.x / block.y};
    thread.stack = stacks_[i];
    everyone_.push_back(&thread);
  }
  warps_.assign(static_cast<std::size_t>((count + warpSize - 1) / warpSize), {});
  for (int i = 0; i < count; ++i) warps_[static_cast<std::size_t>(i / warpSize)].present |= 1u << i % warpSize;
}

bool Worker::run(const KernelCall& kernel, const Options& options, std::uint64_t first, std::uint64_t step,
                 const std::atomic<bool>& stop) {
  options_ = options;
  prepare(kernel);
  main_fiber_ = sanitizer::current_fiber();
  reach_.start(kernel, stacks_);
  this_worker = this;
  simt::blockDim = kernel.shape.block;
  simt::gridDim = kernel.shape.grid;
  const std::uint64_t blocks = std::uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  for (std::uint64_t block = first; block < blocks && !stop && failure_ == nullptr; block += step) run_block(block);
  if (watch_ != nullptr) add_findings(*watch_);
  this_worker = nullptr;
  return failure_ == nullptr;
}

void Worker::run_block(std::uint64_t block) {
  block_ = block;
  const dim3& grid = kernel_->shape.grid;
  simt::blockIdx = {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
                    static_cast<unsigned>(block / grid.x / grid.y)};
  random_.seed(options_.seed * 0x9E3779B97F4A7C15u + block);
  if (options_.schedule != nullptr) options_.schedule->start_block();
  shared_.start_block(kernel_->shape.shared_bytes);
  poison_static_shared();
  if (block == 0) static_use_.start_block();
  shared_log_.reset(static_cast<int>(warps_.size()));
  global_log_.reset(static_cast<int>(warps_.size()));
  for (Warp& warp : warps_) warp.waiting = warp.exited = 0;
  for (Thread* thread : everyone_) {
    thread->state = State::ready;
    thread->site = {};
    thread->copies.clear();
    thread->groups = 0;
    thread->fenced = false;
    thread->last_atomic = nullptr;
    thread->steps_left = options_.steps;
    thread->unwatched = 0;
    sanitizer::unpoison(thread->stack.bottom, thread->stack.bytes);
    prepare_context(thread->context, thread->stack.bottom, thread->stack.bytes, run_thread);
  }
  const auto dynamic = reinterpret_cast<std::uintptr_t>(shared_.data());
  const auto& [locals, shared_locals, own] = thread_locals();
  if (watch_ != nullptr) {
    watch_->start_block(block, {dynamic, dynamic + shared_.bytes()}, locals);
    watch_->assume_written(own.begin, own.end - own.begin);
  }
  trace_ = block == 0 ? Trace::start_block(*kernel_) : nullptr;
  hopper_used_ = false;
  exited_ = 0;
  at_barrier_ = 0;
  ready_.clear();
  make_ready(everyone_);
  ++counters_.blocks;
  counters_.threads += everyone_.size();

  order_with_main(true);
  main_stack_ = {};
  current_ = next_ready();
  simt::threadIdx = current_->index;
  instruments = {};
  instruments.steps_left = current_->steps_left;
  instruments.watch = watch_.get();
  instruments.looks = watch_ != nullptr;
  if (instrumented && locals.begin != 0) {  // else not even static shared memory is known
    instruments.stack = current_->stack.region();
    instruments.dynamic = {dynamic, shared_.bytes()};
    instruments.locals = {locals.begin, locals.end - locals.begin};
    instruments.machine = {own.begin, own.end - own.begin};
  }
  sanitizer::start_switch(current_->stack);
  sanitizer::switch_fiber(current_->fiber);
  switch_context(main_, current_->context);
  sanitizer::finish_switch();
  instruments = {};
  order_with_main(false);

  if (fault_ != Fault::none) failure_ = std::make_exception_ptr(KernelError(place(true) + ": " + message(fault_)));
  fault_ = Fault::none;
  current_ = nullptr;

  if (failure_ == nullptr) {
    const bool all_exited = std::ranges::all_of(everyone_, [](Thread* t) { return t->state == State::exited; });
    if (!all_exited) failure_ = std::make_exception_ptr(KernelError(place(false) + ": " + stuck()));
  }
  if (failure_ == nullptr && hopper_used_) end_hopper();
  if (failure_ == nullptr && block == 0) check_static_use();
  if (failure_ == nullptr) {
    if (const std::ptrdiff_t offset = shared_.overwritten(); offset != 0) {
      failure_ = std::make_exception_ptr(KernelError(place(false) + ": a thread wrote to byte " + std::to_string(offset) +
                                                     " of dynamic shared memory, which has " + std::to_string(shared_.bytes()) +
                                                     " bytes (the address sanitizer tells which)"));
    }
  }
  if (failure_ != nullptr) {
    for (Thread* thread : everyone_) renew_fiber(*thread);
  }
  if (trace_ != nullptr) trace_->end_block();
  count_logged_accesses();
}

Hopper& Worker::hopper() {
  if (!hopper_used_) {
    if (hopper_ == nullptr) hopper_ = std::make_unique<Hopper>(*this);
    const auto dynamic = reinterpret_cast<std::uintptr_t>(shared_.data());
    hopper_->start_block({dynamic, dynamic + shared_.bytes()}, everyone_.size());
    hopper_->units.assume_stored();
    hopper_used_ = true;
    instruments.hopper = hopper_.get();
    instruments.looks = true;
  }
  return *hopper_;
}

void Worker::end_hopper() {
  try {
    hopper_->end_block();
  } catch (const KernelError&) {
    failure_ = std::current_exception();
  }
}

void Worker::check_static_use() {
  try {
    check_static_shared(*kernel_, static_use_.written(), options_.target_sm);
  } catch (const std::runtime_error&) {
    failure_ = std::current_exception();
  }
}

void Worker::count_logged_accesses() {
  shared_log_.flush([&](const AccessLog::Key& key, const WarpAccess& access) {
    counters_.bank_conflicts += bank_conflicts(access, key.bytes);
  });
  global_log_.flush([&](const AccessLog::Key& key, const WarpAccess& access) {
    Traffic& traffic = traffic_[key.object];
    (key.write ? traffic.written_sectors : traffic.read_sectors) += sectors(access, key.bytes);
  });
}

std::string Worker::message(Fault fault) const {
  const std::string line = source_line({.address = fault_instruction_ + 1});
  switch (fault) {
    case Fault::stack_overflow:
      return "its local variables and calls need more than the " + std::to_string(current_->stack.bytes / 1024) +
             " KiB of a simulated thread's stack (large arrays in registers, or a recursion) at " + line;
    case Fault::bad_address:
      return "there is no memory at address " + hexadecimal(fault_address_) + " at " + line;
    default:
      return "it has done nothing but compute for seconds, with no access to memory and no barrier: an endless loop? at " +
             line;
  }
}

void Worker::log_is_full(Site site) {
  shared_log_.reset(static_cast<int>(warps_.size()));
  global_log_.reset(static_cast<int>(warps_.size()));
  abandon("more accesses to memory without a barrier than fit into main memory to be counted: an endless loop? at " +
          machine::words(site));
}

void Worker::no_steps_left(Site site) {
  instruments = {};  // the linker may have taken a kernel file's std::string for ours: it counts its steps, too
  abandon(endless(machine::words(site)));
}

void Worker::no_steps_left(const void* from) {
  instruments = {};
  abandon(endless(source_line_of_call(from)));
}

std::string Worker::endless(const std::string& line) const {
  return "still running after " + std::to_string(options_.steps) + " steps (accesses to memory; a barrier counts as " +
         std::to_string(barrier_steps) + "): an endless loop? FLASH_SIMT_STEPS raises the limit; at " + line;
}

std::string Worker::place(bool with_thread) const {
  std::string text = "kernel " + std::string(kernel_->name) + ", block " + machine::words(simt::blockIdx);
  if (with_thread && current_ != nullptr) text += ", thread " + machine::words(current_->index);
  return text;
}

}  // namespace machine
}  // namespace flash
