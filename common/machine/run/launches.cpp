// Launches of a plain file's kernels, and what kernels call beyond the machine's own functions (include/cuda_runtime.h).
#include "common/machine/engine/limits.hpp"
#include "common/machine/engine/module.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"
#include "common/machine/run/program.hpp"

#include <atomic>
#include <cstdarg>

namespace flash::plain {
namespace {

struct Symbol {
  const void* at;
  std::size_t bytes;
  MemoryOrigin origin;
};
std::vector<Symbol>& symbols() {
  static auto& all = *new std::vector<Symbol>;
  return all;
}

/// A GPU's program would end here, too.
void end_at_host_access(const std::string& message) {
  report_at_exit();
  add(state().of_host, {name_of(RuleId::foreign_memory), message, lines_in(message)});
  std::exit(1);
}

}  // namespace

void prepare() {
  static const bool once = [] {
    for (const Symbol& symbol : symbols()) register_memory(symbol.at, symbol.bytes, symbol.origin);
    on_host_access = end_at_host_access;
    prepare_report();
    Options chosen = options();
    chosen.lenient = !asked("FLASH_RUN_STRICT");
    chosen.host_pointers = false;
    chosen.watch_limit = 300'000'000;
    chosen.seconds = chosen.idle_seconds = 4;
    chosen.count = asked("FLASH_RUN_COUNTS");
    set_options(chosen);
    return true;
  }();
  (void)once;
}

namespace {

cudaError_t error_of(const std::string& rule, std::size_t shared_bytes) {
  if (rule == name_of(RuleId::launch_limits))
    return shared_bytes > state().shared_allowed ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
  if (rule == name_of(RuleId::misaligned)) return cudaErrorMisalignedAddress;
  if (rule == name_of(RuleId::out_of_bounds) || rule == name_of(RuleId::bad_address) || rule == name_of(RuleId::foreign_memory))
    return cudaErrorIllegalAddress;
  return cudaErrorLaunchFailure;
}

void check_allowed(const KernelCall& call) {
  const std::size_t bytes = call.shape.shared_bytes;
  if (bytes <= state().shared_allowed || bytes > machine::shared_bytes_limit(options().target_sm)) return;
  throw KernelError(name_of(RuleId::launch_limits), "kernel " + std::string(call.name) + ": " + number(bytes) +
                                                        " bytes of dynamic shared memory, and more than " +
                                                        number(state().shared_allowed) +
                                                        " have to be allowed first: cudaFuncSetAttribute(" + call.name +
                                                        ", cudaFuncAttributeMaxDynamicSharedMemorySize, " + number(bytes) +
                                                        "), launched at " + machine::words(call.shape.site));
}

/// A kernel of one shape is watched until this has taken so long, in seconds.
constexpr double watch_long_enough = 5;
/// The simulator runs so many threads at once.
constexpr unsigned most_cooperative = machine::most_threads;

}  // namespace

void run(const KernelCall& call, bool cooperative) {
  prepare();
  State& s = state();
  Kernel& kernel = kernel_named(call.name);
  kernel.grid = call.shape.grid;
  kernel.block = call.shape.block;
  if (kernel.launches++ == 0) kernel.after = s.died;
  const unsigned blocks = call.shape.grid.x * call.shape.grid.y * call.shape.grid.z,
                 threads = call.shape.block.x * call.shape.block.y * call.shape.block.z;
  if (cooperative && blocks * threads > most_cooperative)
    unsupported("a cooperative launch of more than " + number(most_cooperative) + " threads", call.shape.site);
  Options chosen = options();
  chosen.watch = can_watch() && kernel.seconds < watch_long_enough;
  set_options(chosen);
  reset_counters();
  const double began = now();
  try {
    KernelCall it = call;
    it.cooperative = cooperative && blocks > 1;
    check_allowed(it);
    run_kernel(it);
  } catch (const KernelError& error) {
    if (std::string(error.rule) == name_of(RuleId::unsupported)) stop_unsupported(error.what());
    add(kernel.findings, {error.rule, error.what(), lines_in(error.what())});
    s.error = error_of(error.rule, call.shape.shared_bytes);
    s.died = call.name;
  }
  const double seconds = now() - began;
  if (chosen.watch) {
    ++kernel.watched;
    kernel.seconds += seconds;
    kernel.complete &= findings().complete;
  }
  kernel.counters += counters();
  report_at_exit();
}

Variable::Variable(const volatile void* at, std::size_t bytes, const char* name, bool, Site site) {
  symbols().push_back({const_cast<const void*>(at), bytes, {MemoryKind::symbol, name, site}});
}

/// Of a function that a loop may wait in.
void count_call() {
  machine::Worker* const worker = machine::Worker::running();
  // The next access to memory notices that no steps are left, if there is one.
  if (worker != nullptr && (machine::instruments.steps_left -= machine::warp_operation_steps) < -(1 << 20))
    worker->scheduler.count_steps(0, static_cast<const void*>(nullptr));
}

int print(const char* format, ...) {
  const machine::sanitizer::Unwatched unwatched;
  count_call();
  static std::atomic<int> calls = 0;  // of kernels
  const int most = asked("FLASH_RUN_BRIEF") ? 256 : 5000, before = machine::Worker::running() != nullptr ? calls++ : -1;
  if (before == most) std::printf("\nkernels have called printf() %d times; what they print from here on is left out\n", most);
  if (before >= most) return 0;
  std::va_list values;
  va_start(values, format);
  const int length = std::vprintf(format, values);
  va_end(values);
  return length;
}

void unsupported(const char* what, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  unsupported(std::string(what), site);
}
void unsupported(const std::string& what, Site site) {
  if (machine::Worker::running() != nullptr) flash::fail(RuleId::unsupported, site, what + " is not simulated");
  stop_unsupported(machine::words(site) + ": " + what + " is not simulated");
}

// ---- addresses -------------------------------------------------------------------------------------------------------------------------

// Shared memory has addresses of its own: dynamic from 0, static from here on.
constexpr unsigned static_shared = 0x40000;

unsigned shared_address_of(const volatile void* pointer) {
  const machine::sanitizer::Unwatched unwatched;
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  const machine::SharedMemory& shared = machine::running_worker("__cvta_generic_to_shared").block.shared;
  const std::uintptr_t offset = at - reinterpret_cast<std::uintptr_t>(shared.data());
  if (offset < static_shared) return static_cast<unsigned>(offset);
  const machine::MemoryRange locals = machine::thread_locals().all;
  return at >= locals.begin && at < locals.end ? static_cast<unsigned>(static_shared + (at - locals.begin)) : not_shared;
}
void* shared_pointer(unsigned address) {
  const machine::sanitizer::Unwatched unwatched;
  if (address < static_shared) return machine::running_worker("an address of shared memory").block.shared.data() + address;
  return reinterpret_cast<void*>(machine::thread_locals().all.begin + (address - static_shared));
}
unsigned special_dynamic_smem_size() {
  const machine::sanitizer::Unwatched unwatched;
  return static_cast<unsigned>(machine::running_worker("%dynamic_smem_size").block.shared.bytes());
}
long long ticks() {
  const machine::sanitizer::Unwatched unwatched;
  count_call();
  static std::atomic<long long> time = 0;
  return time += 1000;
}

/// The lanes of the warp that come to this line before none of them can go on.
unsigned active_lanes(Site site) {
  const machine::sanitizer::Unwatched unwatched;
  struct Meeting {
    std::vector<machine::Thread*> threads;
    std::uint64_t lanes = 0;
  };
  static thread_local std::map<std::tuple<int, const char*, int>, std::shared_ptr<Meeting>> meetings;
  machine::Worker& worker = machine::running_worker("__activemask");
  machine::Thread& self = worker.scheduler.current();
  const std::tuple key{self.warp(), site.file, site.line};
  std::shared_ptr<Meeting>& meeting = meetings[key];
  if (meeting == nullptr) {
    meeting = std::make_shared<Meeting>();
    worker.scheduler.later(self, [&worker, key, meeting] {
      meetings.erase(key);
      worker.scheduler.wake(meeting->threads);
    });
  }
  meeting->threads.push_back(&self);
  meeting->lanes |= 1u << self.lane();
  const std::shared_ptr<Meeting> mine = meeting;
  worker.scheduler.park("__activemask", site);
  return static_cast<unsigned>(mine->lanes);
}

void sync_grid(Site site) {
  __syncthreads(site);
  if (thread_rank() == 0) {
    const machine::sanitizer::Unwatched unwatched;
    machine::Worker& worker = machine::running_worker("grid.sync()");
    machine::Grid* const grid = worker.scheduler.grid();
    const bool cooperative = worker.block.kernel->cooperative;
    if (!cooperative && std::uint64_t{gridDim.x} * gridDim.y * gridDim.z > 1)
      fail(RuleId::bad_argument, site, "grid.sync() in a kernel that was not launched as a cooperative one");
    if (cooperative && !grid->meet()) fail(RuleId::deadlock, site, "grid.sync(): other blocks have ended without it");
  }
  __syncthreads(site);
}
const TensorMap& map_at(const void* at, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  const auto* const map = static_cast<const CUtensorMap*>(at);
  if (map->mark != flash_map_mark)
    fail(RuleId::bad_argument, site, "TMA with a tensor map that cuTensorMapEncodeTiled has not made");
  return map->map;
}

}  // namespace flash::plain

// assert() in kernels: the C library's would end the program.
extern "C" void __assert_fail(const char* expression, const char* file, unsigned line, const char*) noexcept {
  const flash::machine::sanitizer::Unwatched unwatched;
  if (flash::machine::Worker* const worker = flash::machine::Worker::running())
    worker->scheduler.abandon(flash::RuleId::trap, "assertion '" + std::string(expression) + "' fails at " +
                                                       flash::machine::words(flash::Site{file, static_cast<int>(line)}));
  std::fprintf(stderr, "%s:%u: assertion '%s' fails\n", file, line, expression);
  std::abort();
}
