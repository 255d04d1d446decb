#include "common/simt/machine/worker.hpp"
#include "common/device/error.hpp"
#include "common/simt/machine/sanitizer.hpp"
#include "common/simt/shared_view.hpp"
#include "common/simt/thread.hpp"

#include <algorithm>
#include <stdexcept>

namespace flash {
inline namespace simt {

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};
constinit thread_local Traffic* running_traffic = nullptr;
constinit thread_local bool log_global_accesses = false;

void log_global_access(Site site, int id, const void* address, std::size_t bytes, bool write) {
  machine::Worker& worker = machine::running_worker("a view");
  const machine::Thread& self = worker.current();
  worker.global_log().add(self.warp(), self.lane(),
                          {site.file, site.line, static_cast<int>(bytes), static_cast<std::uintptr_t>(id), write},
                          reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace simt

namespace machine {
namespace {

constinit thread_local Worker* this_worker = nullptr;

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
  this_worker = this;
  running_traffic = traffic_.data();
  simt::blockDim = kernel.shape.block;
  simt::gridDim = kernel.shape.grid;
  const std::uint64_t blocks = std::uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  for (std::uint64_t block = first; block < blocks && !stop && failure_ == nullptr; block += step) run_block(block);
  this_worker = nullptr;
  running_traffic = nullptr;
  simt::shared_window = {};
  return failure_ == nullptr;
}

void Worker::run_block(std::uint64_t block) {
  block_ = block;
  const dim3& grid = kernel_->shape.grid;
  simt::blockIdx = {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
                    static_cast<unsigned>(block / grid.x / grid.y)};
  random_.seed(options_.seed * 0x9E3779B97F4A7C15u + block);
  shared_.start_block(kernel_->shape.shared_bytes);
  poison_static_shared();
  simt::shared_window = {reinterpret_cast<std::uintptr_t>(shared_.data()), shared_.bytes(), SharedMemory::reach,
                         options_.count};
  simt::log_global_accesses = options_.count;
  shared_log_.reset(static_cast<int>(warps_.size()));
  global_log_.reset(static_cast<int>(warps_.size()));
  for (Warp& warp : warps_) warp.waiting = warp.exited = 0;
  for (Thread* thread : everyone_) {
    thread->state = State::ready;
    thread->copies.clear();
    thread->groups = 0;
    thread->fenced = false;
    thread->last_atomic = nullptr;
    sanitizer::unpoison(thread->stack.bottom, thread->stack.bytes);
    prepare_context(thread->context, thread->stack.bottom, thread->stack.bytes, run_thread);
  }
  at_barrier_ = 0;
  ready_.clear();
  make_ready(everyone_);
  ++counters_.blocks;
  counters_.threads += everyone_.size();

  order_with_main(true);
  main_stack_ = {};
  current_ = next_ready();
  simt::threadIdx = current_->index;
  sanitizer::start_switch(current_->stack);
  sanitizer::switch_fiber(current_->fiber);
  switch_context(main_, current_->context);
  sanitizer::finish_switch();
  order_with_main(false);

  if (overflowed_) {
    overflowed_ = false;
    failure_ = std::make_exception_ptr(KernelError(
        place(true) + ": its local variables and calls need more than the " + std::to_string(current_->stack.bytes / 1024) +
        " KiB of a simulated thread's stack (large arrays in registers, or a recursion)"));
  }
  current_ = nullptr;

  if (failure_ == nullptr) {
    const bool all_exited = std::ranges::all_of(everyone_, [](Thread* t) { return t->state == State::exited; });
    if (!all_exited) failure_ = std::make_exception_ptr(KernelError(place(false) + ": " + stuck()));
  }
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
  count_logged_accesses();
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

// A thread that was abandoned stays for ever in the calls, or the signal handler, that it was in.
void Worker::renew_fiber(Thread& thread) {
  if (thread.fiber == nullptr) return;
  sanitizer::destroy_fiber(thread.fiber);
  thread.fiber = sanitizer::create_fiber();
}

void Worker::run_thread() {
  Worker& worker = *this_worker;
  Stack from;
  sanitizer::finish_switch(&from);
  if (worker.main_stack_.bottom == nullptr) worker.main_stack_ = from;  // main started the first thread of the block
  try {
    worker.kernel_->invoke(worker.kernel_->call);
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
  self.state = State::exited;
  warps_[static_cast<std::size_t>(self.warp())].exited |= 1u << self.lane();
}

void Worker::suspend() {
  sanitizer::watch_again();  // it may never come back here
  Thread* const next = next_ready();
  if (next == nullptr) leave_block();  // every thread waits or has exited: stuck
  resume(*next);
  sanitizer::stop_watching();
}

void Worker::resume(Thread& next) {
  Thread& self = *current_;
  current_ = &next;
  simt::threadIdx = next.index;
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

// Called by a signal handler, which may not even allocate memory.
void Worker::stack_overflow() {
  overflowed_ = true;
  leave_block();
}

void Worker::make_ready(const std::vector<Thread*>& threads) {
  const auto first = static_cast<std::ptrdiff_t>(ready_.size());
  // No insert(): it calls memmove, which ThreadSanitizer would take for an access of the kernel.
  for (Thread* thread : threads) ready_.push_back(thread);
  if (options_.order == Order::forward) std::reverse(ready_.begin() + first, ready_.end());  // the last one goes first
}

Thread* Worker::next_ready() {
  if (ready_.empty()) return nullptr;
  if (options_.order == Order::random) std::swap(ready_[random_() % ready_.size()], ready_.back());
  Thread* const next = ready_.back();
  ready_.pop_back();
  return next;
}

std::string Worker::place(bool with_thread) const {
  const auto words = [](const uint3& i) {
    return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
  };
  std::string text = "kernel " + std::string(kernel_->name) + ", block " + words(simt::blockIdx);
  if (with_thread) text += ", thread " + words(current_->index);
  return text;
}

void Worker::order(const std::vector<Thread*>& threads, [[maybe_unused]] void* token) {
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
#else
  (void)threads;
#endif
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

}  // namespace machine
}  // namespace flash
