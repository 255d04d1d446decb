// A launch: limits checked, blocks spread over operating-system threads, counts added up.
#include "common/machine/cpu/launch.hpp"

#include "common/machine/cpu/float16.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/limits.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/stall_timer.hpp"
#include "common/machine/engine/trace.hpp"
#include "common/machine/engine/worker.hpp"
#include "common/machine/error.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace flash {
namespace machine {
namespace {

std::mutex mutex;  // guards what follows
std::vector<std::unique_ptr<Worker>> idle_workers;
Counters total;

/// Workers keep their stacks from launch to launch.
std::unique_ptr<Worker> take_worker() {
  const std::lock_guard lock(mutex);
  if (idle_workers.empty()) return std::make_unique<Worker>();
  std::unique_ptr<Worker> worker = std::move(idle_workers.back());
  idle_workers.pop_back();
  return worker;
}

void give_back(std::unique_ptr<Worker> worker) {
  const std::lock_guard lock(mutex);
  idle_workers.push_back(std::move(worker));
}

void add_to_total(const BlockState& block) {
  const std::vector<std::string> names = traffic_names();
  Counters part = block.counters;
  for (std::size_t id = 0; id < block.of_id.size(); ++id) {
    const auto& [read, written, read_sectors, written_sectors] = block.of_id[id];
    if (read != 0 || written != 0) part.traffic.push_back({names[id], read, written, read_sectors, written_sectors});
  }
  const std::lock_guard lock(mutex);
  total += part;
}

/// Ends the kernel if it is to blame. Under AddressSanitizer a bad address is left to it, which says more.
void on_signal(const SignalHandler::Signal& signal) {
  Worker* const worker = Worker::running();
  if (signal.number == stall_signal) {
    if (stands_still() && worker != nullptr)
      worker->scheduler.abandon(Scheduler::Fault::stands_still, nullptr, signal.instruction);
  } else if (worker != nullptr && worker->scheduler.in_guard(signal.address)) {
    worker->scheduler.abandon(Scheduler::Fault::stack_overflow, signal.address, signal.instruction);
  } else if (worker != nullptr && instrumented) {
    worker->scheduler.abandon(Scheduler::Fault::bad_address, signal.address, signal.instruction);
  }
}

std::atomic<bool> blocks_wait = false;  ///< those of an earlier launch have waited for each other, in loops

std::uint64_t blocks_of(const KernelCall& kernel) {
  return std::uint64_t{kernel.shape.grid.x} * kernel.shape.grid.y * kernel.shape.grid.z;
}

/// How many operating-system threads share the blocks; with `by_turns`, one of them at a time.
std::size_t worker_count(const KernelCall& kernel, const Options& options, [[maybe_unused]] bool by_turns) {
  const std::uint64_t blocks = blocks_of(kernel);
  if (kernel.cooperative) return blocks;
  std::uint64_t workers =
      options.os_threads > 0 ? static_cast<unsigned>(options.os_threads) : std::thread::hardware_concurrency();
  const unsigned threads = kernel.shape.block.x * kernel.shape.block.y * kernel.shape.block.z;
#ifdef __EMSCRIPTEN__
  workers = 1;
#else
  if (by_turns) workers = simulated_sms * blocks_per_sm(threads, kernel.shape.shared_bytes, options.target_sm);
#endif
  return std::max<std::uint64_t>(std::min<std::uint64_t>({workers, blocks, most_threads / threads}), 1);
}

}  // namespace
}  // namespace machine

inline namespace simt {

void run_kernel(const KernelCall& kernel) {
  using namespace machine;
  if (Worker::running() != nullptr) {
    const sanitizer::Unwatched unwatched;
    throw KernelError(name_of(RuleId::unsupported), Worker::running()->scheduler.place(true) + ": it launches kernel " +
                                                        kernel.name +
                                                        ": dynamic parallelism is not simulated; launch it from the host");
  }
  const Options chosen = options();
  check_limits(kernel, chosen.target_sm);
  Trace::open(chosen.trace);
  const bool by_turns = kernel.cooperative || chosen.watch || blocks_wait;
  std::vector<std::unique_ptr<Worker>> workers(worker_count(kernel, chosen, by_turns));
  std::vector<std::thread> threads(workers.size());
  std::vector<std::exception_ptr> broken(workers.size());
  std::atomic<bool> stop = false;
  const std::function stopped = [&stop, asked = stop_request] { return stop || (asked != nullptr && *asked != 0); };
  std::optional<Grid> grid;
  const std::function work = [&, format = format_of_run()](std::size_t i) {
    try {
      set_format_of_run(format);
      const SignalStack signal_stack;
      const StallTimer stall_timer(chosen.idle_seconds);
      if (!workers[i]->run(kernel, chosen, i, workers.size(), stopped, grid ? &*grid : nullptr)) stop = true;
    } catch (...) {
      broken[i] = std::current_exception();
      stop = true;
    }
  };
  {
    const SignalHandler handler(on_signal);
    const auto start = [&](std::size_t i) {
      workers[i] = take_worker();
      try {
        if (i > 0) threads[i] = std::thread(work, i);
      } catch (const std::system_error&) {
        give_back(std::move(workers[i]));
      }
      return workers[i] != nullptr;
    };
    start(0);
    if (by_turns) grid.emplace(blocks_of(kernel), workers.size(), start);
    for (std::size_t i = 1; i < workers.size() && !by_turns && start(i); ++i) {
    }
    work(0);
    // Whoever starts a worker ends after, and has a lower number.
    for (std::size_t i = 1; i < workers.size() && threads[i].joinable(); ++i) threads[i].join();
  }
  std::erase(workers, nullptr);
  if (by_turns && !kernel.cooperative && workers.size() > 1) blocks_wait = true;

  std::exception_ptr failure;
  std::uint64_t failed_block = 0;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const Worker& worker = *workers[i];
    if (worker.scheduler.failure() != nullptr && (failure == nullptr || worker.block.number < failed_block)) {
      failure = worker.scheduler.failure();
      failed_block = worker.block.number;
    }
    if (failure == nullptr) failure = broken[i];
  }
  if (grid && grid->failure != nullptr) failure = grid->failure;
  workers.front()->block.counters.launches = 1;
  for (std::unique_ptr<Worker>& worker : workers) {
    add_to_total(worker->block);
    give_back(std::move(worker));
  }
  if (failure == nullptr && stopped()) throw DeviceError("stopped");
  if (failure != nullptr) std::rethrow_exception(failure);
}

Counters counters() {
  const std::lock_guard lock(machine::mutex);
  std::ranges::sort(machine::total.traffic, {}, &TensorTraffic::tensor);
  return machine::total;
}

void reset_counters() {
  const std::lock_guard lock(machine::mutex);
  machine::total = {};
}

void* dynamic_shared_bytes(std::size_t bytes, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  const machine::SharedMemory& shared = machine::running_worker("dynamic_shared").block.shared;
  if (bytes > shared.bytes()) {
    fail(RuleId::out_of_bounds, site,
         "dynamic_shared asks for " + std::to_string(bytes) + " bytes, the launch provided " + std::to_string(shared.bytes()));
  }
  return shared.data();
}

}  // namespace simt
}  // namespace flash
