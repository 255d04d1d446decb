// CUDA's runtime for plain .cu files (include/cuda_runtime.h), and the report at the program's end.
//
//   FLASH_RUN_JSON=FILE   one object instead of the report        FLASH_RUN_COUNTS=1   bytes, sectors, bank conflicts
//   FLASH_RUN_STRICT=1    what hardware since Volta tolerates, and what hardly ever does harm, is a finding, too
#include <cuda.h>

#include "common/machine/cpu/allocations.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/limits.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/module.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"
#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdarg>
#include <list>
#include <mutex>
#include <thread>

struct flash_stream {};
struct flash_event {
  double at;
};

namespace flash::plain {
namespace {

using Clock = std::chrono::steady_clock;
double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
bool asked(const char* variable) { return std::getenv(variable) != nullptr; }

struct Finding {
  std::string rule, text;
  std::vector<std::string> lines;
};

struct Kernel {
  std::string name;
  dim3 grid, block;
  std::uint64_t launches = 0, watched = 0;
  double seconds = 0;  ///< of watched launches
  bool complete = true;
  std::vector<Finding> findings, remarks;
  Counters counters;
  std::vector<ArrayConflicts> conflicts;
};

// Kept until the process is gone: the report is made when destructors run.
struct State {
  std::list<Kernel> kernels;
  std::vector<Finding> of_host;  ///< calls of the runtime with wrong arguments
  cudaError_t error = cudaSuccess;
  std::atomic<std::uint64_t> threads = 0, all_threads = 0;
  std::atomic<double> began = 0.0;  ///< 0: no kernel runs
  std::atomic<const char*> running = nullptr;
  std::atomic<int> launches = 0;
  bool reported = false;
  bool cooperative = false;  ///< all blocks of the launch run at once, and meet in grid.sync():
  std::mutex grid_mutex;
  std::condition_variable grid_changed;
  std::uint64_t grid_phase = 0;
  unsigned grid_arrived = 0;
};
State& state() {
  static State& it = *new State;
  return it;
}

struct Symbol {
  const void* at;
  std::size_t bytes;
  MemoryOrigin origin;
};
std::vector<Symbol>& symbols() {
  static auto& all = *new std::vector<Symbol>;
  return all;
}

// ---- the report ------------------------------------------------------------------------------------------------------------------------

/// What stands behind the last " at " of a KernelError.
std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  const std::size_t at = text.rfind(" at ");
  if (at == std::string::npos) return lines;
  std::string rest = text.substr(at + 4);
  for (const std::size_t comma = rest.find(", called from "); comma != std::string::npos;) {
    lines.push_back(rest.substr(0, comma));
    rest = rest.substr(comma + 14);
    break;
  }
  lines.push_back(rest);
  return lines;
}

void add(std::vector<Finding>& all, Finding finding) {
  for (const Finding& known : all) {
    if (known.rule == finding.rule && known.lines == finding.lines) return;
  }
  all.push_back(std::move(finding));
}

Kernel& kernel_named(const std::string& name) {
  for (Kernel& kernel : state().kernels) {
    if (kernel.name == name) return kernel;
  }
  Kernel& fresh = state().kernels.emplace_back();
  fresh.name = name;
  return fresh;
}

void collect() {
  const Findings found = findings();
  for (const Race& race : found.races)
    add(kernel_named(race.kernel).findings, {name_of(race.rule()), sentence(race), {race.first_line, race.second_line}});
  for (const Race& race : found.remarks)
    add(kernel_named(race.kernel).remarks, {name_of(race.rule()), sentence(race), {race.first_line, race.second_line}});
  for (const UnwrittenRead& read : found.unwritten)
    add(kernel_named(read.kernel).findings, {name_of(RuleId::unwritten_read), sentence(read), {read.line}});
  for (const ArrayConflicts& conflicts : found.conflicts) kernel_named(conflicts.kernel).conflicts.push_back(conflicts);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) >= 32) {
      result += c;
    }
  }
  return result + '"';
}
template <class All, class Show>
std::string listed(const All& all, Show show) {
  std::string text;
  for (const auto& each : all) text += (text.empty() ? "" : ", ") + show(each);
  return "[" + text + "]";
}
std::string json(const Finding& f) {
  return "{\"rule\": " + quoted(f.rule) + ", \"text\": " + quoted(f.text) + ", \"lines\": " + listed(f.lines, quoted) + "}";
}
std::string number(std::uint64_t n) { return std::to_string(n); }
std::string words(const dim3& size) { return number(size.x) + "x" + number(size.y) + "x" + number(size.z); }

std::string json(const Kernel& k) {
  const Counters& c = k.counters;
  const auto traffic = [](const TensorTraffic& t) {
    return "{\"memory\": " + quoted(t.tensor) + ", \"read_bytes\": " + number(t.read_bytes) +
           ", \"written_bytes\": " + number(t.written_bytes) + ", \"read_sectors\": " + number(t.read_sectors) +
           ", \"written_sectors\": " + number(t.written_sectors) + "}";
  };
  const auto conflicts = [](const ArrayConflicts& a) {
    return "{\"line\": " + quoted(a.line) + ", \"bank_conflicts\": " + number(a.count) + "}";
  };
  const auto one = [](const Finding& f) { return json(f); };
  return "{\"kernel\": " + quoted(k.name) + ", \"launches\": " + number(k.launches) + ", \"watched\": " + number(k.watched) +
         ", \"complete\": " + (k.complete ? "true" : "false") + ", \"findings\": " + listed(k.findings, one) +
         ", \"remarks\": " + listed(k.remarks, one) + ", \"traffic\": " + listed(c.traffic, traffic) +
         ", \"conflicts\": " + listed(k.conflicts, conflicts) + ", \"barriers\": " + number(c.barriers) +
         ", \"warp_operations\": " + number(c.warp_operations) + ", \"atomics\": " + number(c.atomics) +
         ", \"tensor_core_products\": " + number(c.tensor_core_products) + ", \"bank_conflicts\": " + number(c.bank_conflicts) +
         "}";
}

/// The head line of a kernel has said its name.
std::string without_name(std::string text, const Kernel& k) {
  if (const std::string name = " (kernel " + k.name + ")"; text.ends_with(name)) text.resize(text.size() - name.size());
  if (const std::string name = "kernel " + k.name + ", "; text.starts_with(name)) text.erase(0, name.size());
  return text;
}

void print_report(const Kernel& k, bool counts) {
  std::string head = "kernel " + k.name + ": " + number(k.launches) +
                     (k.launches == 1 ? " launch of " : " launches, the last of ") + words(k.grid) + " blocks of " +
                     words(k.block) + " threads";
  if (k.watched < k.launches) head += ", " + number(k.watched) + " of them watched";
  std::fprintf(stderr, "%s: %s\n", head.c_str(),
               k.findings.empty() ? "nothing found"
                                  : (number(k.findings.size()) + (k.findings.size() == 1 ? " finding" : " findings")).c_str());
  for (const Finding& f : k.findings) std::fprintf(stderr, "  [%s] %s\n", f.rule.c_str(), without_name(f.text, k).c_str());
  for (const Finding& f : k.remarks)
    std::fprintf(stderr, "  remark [%s] %s\n", f.rule.c_str(), without_name(f.text, k).c_str());
  if (!k.complete)
    std::fprintf(stderr,
                 "  only a part of its accesses was watched, since there are so many: a smaller problem is watched whole\n");
  if (!counts) return;
  for (const TensorTraffic& t : k.counters.traffic)
    std::fprintf(stderr, "  %s: %s bytes in %s sectors read, %s bytes in %s sectors written\n", t.tensor.c_str(),
                 number(t.read_bytes).c_str(), number(t.read_sectors).c_str(), number(t.written_bytes).c_str(),
                 number(t.written_sectors).c_str());
  for (const ArrayConflicts& a : k.conflicts)
    std::fprintf(stderr, "  %s bank conflicts at %s\n", number(a.count).c_str(), a.line.c_str());
  const Counters& c = k.counters;
  std::fprintf(stderr, "  %s barriers, %s warp operations, %s atomics", number(c.barriers).c_str(),
               number(c.warp_operations).c_str(), number(c.atomics).c_str());
  if (c.tensor_core_products != 0)
    std::fprintf(stderr, ", %s products on tensor cores", number(c.tensor_core_products).c_str());
  if (c.bank_conflicts != 0) std::fprintf(stderr, ", %s bank conflicts of ldmatrix", number(c.bank_conflicts).c_str());
  std::fprintf(stderr, "\n");
}

/// For common/run: "clean", "found", "unsupported".
void note_end(const char* how) {
  const char* const path = std::getenv("FLASH_RUN_DONE");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fputs(how, file);
  std::fclose(file);
}

[[noreturn]] void stop_unsupported(const std::string& line) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", line.c_str());
  note_end("unsupported");
  std::_Exit(2);
}

/// Says what was found; true if anything was.
bool report() {
  State& s = state();
  if (s.reported) return false;
  s.reported = true;
  std::fflush(stdout);
  collect();
  bool found = !s.of_host.empty();
  for (Kernel& k : s.kernels) {
    if (asked("FLASH_RUN_STRICT")) {
      for (Finding& f : k.remarks) k.findings.push_back(std::move(f));
      k.remarks.clear();
    }
    found |= !k.findings.empty();
  }
  note_end(found ? "found" : "clean");
  if (const char* const path = std::getenv("FLASH_RUN_JSON")) {
    if (std::FILE* const file = std::fopen(path, "w")) {
      std::fprintf(file, "{\"kernels\": %s, \"host\": %s}\n",
                   listed(s.kernels, [](const Kernel& k) { return json(k); }).c_str(),
                   listed(s.of_host, [](const Finding& f) { return json(f); }).c_str());
      std::fclose(file);
    }
    return found;
  }
  for (const Finding& f : s.of_host) std::fprintf(stderr, "host: [%s] %s\n", f.rule.c_str(), f.text.c_str());
  for (const Kernel& k : s.kernels) print_report(k, asked("FLASH_RUN_COUNTS"));
  return found;
}

void at_exit() {
  if (report()) std::_Exit(1);
}
void at_abort(int) {
  if (report()) std::_Exit(1);
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

// ---- launches --------------------------------------------------------------------------------------------------------------------------

/// Says from time to time what takes so long: one launch, or many.
void wait_and_tell() {
  State& s = state();
  const double first_began = now();
  for (double next = 10;; next *= 3) {
    while (s.began == 0 || now() - first_began < next) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double part = static_cast<double>(s.threads) / static_cast<double>(std::max<std::uint64_t>(s.all_threads, 1));
    std::fprintf(stderr,
                 "after %.0f s: launch %d, of kernel %s, has started %.1f %% of its threads; fewer blocks, fewer runs or a "
                 "smaller problem show the same findings sooner\n",
                 now() - first_began, s.launches.load(), s.running.load(), 100 * part);
  }
}

void report_at_exit();

/// A GPU's program would end here, too.
void end_at_host_access(const std::string& message) {
  report_at_exit();
  add(state().of_host, {name_of(RuleId::foreign_memory), message, lines_in(message)});
  std::exit(1);
}

void prepare() {
  static const bool once = [] {
    for (const Symbol& symbol : symbols()) register_memory(symbol.at, symbol.bytes, symbol.origin);
    on_host_access = end_at_host_access;
    Options chosen = options();
    chosen.lenient = !asked("FLASH_RUN_STRICT");
    chosen.host_pointers = false;
    chosen.watch_limit = 300'000'000;
    chosen.count = asked("FLASH_RUN_COUNTS");
    set_options(chosen);
    return true;
  }();
  (void)once;
}

/// After the simulator's own, which the report needs.
void report_at_exit() {
  static const bool once = [] {
    (void)findings();
    (void)counters();
    std::atexit(at_exit);
    std::signal(SIGABRT, at_abort);
    std::thread(wait_and_tell).detach();
    return true;
  }();
  (void)once;
}

void add_counters(Counters& sum, const Counters& part) {
  sum.bank_conflicts += part.bank_conflicts;
  sum.tensor_core_products += part.tensor_core_products;
  sum.barriers += part.barriers;
  sum.warp_operations += part.warp_operations;
  sum.atomics += part.atomics;
  for (const TensorTraffic& t : part.traffic) {
    auto known = std::ranges::find(sum.traffic, t.tensor, &TensorTraffic::tensor);
    if (known == sum.traffic.end()) known = sum.traffic.insert(known, {t.tensor});
    known->read_bytes += t.read_bytes;
    known->written_bytes += t.written_bytes;
    known->read_sectors += t.read_sectors;
    known->written_sectors += t.written_sectors;
  }
}

cudaError_t error_of(const std::string& rule) {
  if (rule == name_of(RuleId::launch_limits)) return cudaErrorInvalidConfiguration;
  if (rule == name_of(RuleId::misaligned)) return cudaErrorMisalignedAddress;
  if (rule == name_of(RuleId::out_of_bounds) || rule == name_of(RuleId::bad_address) || rule == name_of(RuleId::foreign_memory))
    return cudaErrorIllegalAddress;
  return cudaErrorLaunchFailure;
}

/// A kernel of one shape is watched until this has taken so long, in seconds.
constexpr double watch_long_enough = 5;
/// The simulator runs so many threads at once.
constexpr unsigned most_cooperative = 16384;

}  // namespace

void count_thread() { state().threads.fetch_add(1, std::memory_order_relaxed); }

void run(const KernelCall& call, bool cooperative) {
  prepare();
  State& s = state();
  Kernel& kernel = kernel_named(call.name);
  kernel.grid = call.shape.grid;
  kernel.block = call.shape.block;
  ++kernel.launches;
  const unsigned blocks = call.shape.grid.x * call.shape.grid.y * call.shape.grid.z,
                 threads = call.shape.block.x * call.shape.block.y * call.shape.block.z;
  s.cooperative = cooperative && blocks > 1;
  s.grid_arrived = 0;
  if (s.cooperative && blocks * threads > most_cooperative)
    unsupported("a cooperative launch of more than " + number(most_cooperative) + " threads", call.shape.site);
  Options chosen = options();
  chosen.watch = can_watch() && kernel.seconds < watch_long_enough && !s.cooperative;
  chosen.os_threads = s.cooperative ? static_cast<int>(blocks) : 0;
  set_options(chosen);
  reset_counters();
  s.threads = 0;
  s.all_threads = std::uint64_t{call.shape.grid.x} * call.shape.grid.y * call.shape.grid.z * call.shape.block.x *
                  call.shape.block.y * call.shape.block.z;
  s.running = call.name;
  ++s.launches;
  s.began = now();
  try {
    run_kernel(call);
  } catch (const KernelError& error) {
    if (std::string(error.rule) == name_of(RuleId::unsupported)) stop_unsupported(error.what());
    add(kernel.findings, {error.rule, error.what(), lines_in(error.what())});
    s.error = error_of(error.rule);
  }
  const double seconds = now() - s.began;
  s.began = 0.0;
  if (chosen.watch) {
    ++kernel.watched;
    kernel.seconds += seconds;
    kernel.complete &= findings().complete;
  }
  add_counters(kernel.counters, counters());
  report_at_exit();
}

Variable::Variable(const volatile void* at, std::size_t bytes, const char* name, bool, Site site) {
  symbols().push_back({const_cast<const void*>(at), bytes, {MemoryKind::symbol, name, site}});
}

int print(const char* format, ...) {
  const machine::sanitizer::Unwatched unwatched;
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
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    State& s = state();
    if (blocks > 1 && !s.cooperative)
      fail(RuleId::bad_argument, site, "grid.sync() in a kernel that was not launched as a cooperative one");
    std::unique_lock lock(s.grid_mutex);
    const std::uint64_t phase = s.grid_phase;
    if (++s.grid_arrived == blocks) {
      s.grid_arrived = 0;
      ++s.grid_phase;
      s.grid_changed.notify_all();
    } else if (!s.grid_changed.wait_for(lock, std::chrono::seconds(60), [&] { return s.grid_phase != phase; })) {
      fail(RuleId::deadlock, site, "grid.sync(): other blocks do not come");
    }
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

// ---- memory ----------------------------------------------------------------------------------------------------------------------------

namespace {

cudaError_t wrong(RuleId rule, const std::string& text, Site site, cudaError_t error = cudaErrorInvalidValue) {
  report_at_exit();
  const std::string line = machine::words(site);
  add(state().of_host, {name_of(rule), text + " at " + line, {line}});
  state().error = error;
  return error;
}

/// Does the host's call stay in the memory that it names? `device`: it must be a kernel's memory.
cudaError_t check(const void* at, std::size_t bytes, bool device, const char* does, const char* call, Site site) {
  const std::optional<MemoryInfo> memory = find_memory(at);
  if (!memory) {
    if (!device) return cudaSuccess;
    return wrong(RuleId::foreign_memory, std::string(call) + does + "memory of the host where the device's is expected", site);
  }
  if (memory->freed)
    return wrong(
        RuleId::use_after_free,
        std::string(call) + does + name_of(memory->origin) + ", which was freed at " + machine::words(*memory->freed) + ",",
        site);
  const std::size_t offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(at) - static_cast<const std::byte*>(memory->begin));
  if (offset + bytes > memory->bytes)
    return wrong(RuleId::out_of_bounds,
                 std::string(call) + does + number(offset + bytes - memory->bytes) + " bytes past the end of the " +
                     number(memory->bytes) + " bytes of " + name_of(memory->origin) + ",",
                 site);
  return cudaSuccess;
}

}  // namespace

cudaError_t allocate(void** p, std::size_t bytes, const char* call, bool managed, Site site) {
  prepare();
  try {
    *p = bytes == 0 ? nullptr : allocate_memory(bytes, {managed ? MemoryKind::managed : MemoryKind::device, call, site});
  } catch (const DeviceError&) {
    *p = nullptr;
    return state().error = cudaErrorMemoryAllocation;
  }
  return cudaSuccess;
}
cudaError_t release(void* p, const char* call, Site site) {
  if (p == nullptr) return last_error();
  if (free_memory(p, site)) return last_error();
  const std::optional<MemoryInfo> memory = find_memory(p);
  if (memory && memory->freed)
    return wrong(RuleId::use_after_free,
                 std::string(call) + " of " + name_of(memory->origin) + ", which was freed before at " +
                     machine::words(*memory->freed) + ",",
                 site);
  return wrong(RuleId::bad_argument, std::string(call) + " of what no allocation begins with,", site);
}
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const char* call, Site site) {
  prepare();
  if (bytes == 0) return last_error();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (const cudaError_t error = check(to, bytes, to_device, " writes ", call, site)) return error;
  if (const cudaError_t error = check(from, bytes, from_device, " reads ", call, site)) return error;
  std::memmove(to, from, bytes);
  if (find_memory(to)) filled_by_host(to, bytes);
  return last_error();
}
cudaError_t fill(void* to, int value, std::size_t bytes, const char* call, Site site) {
  prepare();
  if (bytes == 0) return last_error();
  if (const cudaError_t error = check(to, bytes, true, " writes ", call, site)) return error;
  std::memset(to, value, bytes);
  filled_by_host(to, bytes);
  return last_error();
}
cudaError_t last_error() { return state().error; }

}  // namespace flash::plain

// ---- the runtime's functions -------------------------------------------------------------------------------------------------------------

using flash::plain::state;

cudaError_t cudaPeekAtLastError() { return state().error; }
cudaError_t cudaGetLastError() { return std::exchange(state().error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define FLASH_ERROR(name) \
  case name:              \
    return #name;
    FLASH_ERROR(cudaSuccess)
    FLASH_ERROR(cudaErrorInvalidValue)
    FLASH_ERROR(cudaErrorMemoryAllocation)
    FLASH_ERROR(cudaErrorInvalidConfiguration)
    FLASH_ERROR(cudaErrorInvalidDevice)
    FLASH_ERROR(cudaErrorIllegalAddress)
    FLASH_ERROR(cudaErrorMisalignedAddress)
    FLASH_ERROR(cudaErrorLaunchFailure)
    FLASH_ERROR(cudaErrorNotSupported)
#undef FLASH_ERROR
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorMisalignedAddress:
      return "misaligned address";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return cudaGetErrorName(error);
  }
}

cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned, flash::Site site) {
  flash::register_memory(p, bytes, {flash::MemoryKind::managed, "cudaHostRegister", site});
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p, flash::Site site) {
  return flash::unregister_memory(p, site) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  const auto memory = flash::find_memory(p);
  const bool managed = memory && memory->origin.kind == flash::MemoryKind::managed;
  void* const at = const_cast<void*>(p);
  *attributes = {memory ? managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0,
                 memory ? at : nullptr, memory && !managed ? nullptr : at};
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const double bytes = flash::available_host_memory();
  *free = *total = bytes < 8e10 ? static_cast<std::size_t>(bytes) : std::size_t{80} << 30;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int number) {
  if (number != 0) return cudaErrorInvalidDevice;
  const int sm = flash::options().target_sm;
  const flash::DeviceLimits limits = flash::machine::limits_of(sm);
  *device = {};
  std::snprintf(device->name, sizeof device->name, "a simulated GPU of sm_%d", sm);
  device->major = sm / 10;
  device->minor = sm % 10;
  device->warpSize = 32;
  device->multiProcessorCount = 4;  // programs make as many blocks as fill them
  device->maxThreadsPerBlock = 1024;
  device->maxThreadsPerMultiProcessor = 2048;
  device->maxBlocksPerMultiProcessor = 32;
  device->regsPerBlock = device->regsPerMultiprocessor = 65536;
  device->totalGlobalMem = std::size_t{80} << 30;
  device->sharedMemPerBlock = 48 << 10;
  device->sharedMemPerBlockOptin = limits.shared_bytes;
  device->sharedMemPerMultiprocessor = limits.shared_bytes_sm;
  device->reservedSharedMemPerBlock = 1024;
  device->totalConstMem = 65536;
  device->memPitch = 2147483647;
  device->textureAlignment = 512;
  device->l2CacheSize = 50 << 20;
  device->memoryBusWidth = 5120;
  device->clockRate = 1'000'000;
  device->memoryClockRate = 1'000'000;
  device->cooperativeLaunch = device->concurrentKernels = device->unifiedAddressing = device->canMapHostMemory =
      device->managedMemory = 1;
  device->concurrentManagedAccess = device->asyncEngineCount = device->deviceOverlap = 1;
  device->maxThreadsDim[0] = device->maxThreadsDim[1] = 1024;
  device->maxThreadsDim[2] = 64;
  device->maxGridSize[0] = 2147483647;
  device->maxGridSize[1] = device->maxGridSize[2] = 65535;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  cudaDeviceProp device;
  if (const cudaError_t error = cudaGetDeviceProperties(&device, number)) return error;
  switch (attribute) {
#define FLASH_ATTRIBUTE(name, member)         \
  case cudaDevAttr##name:                     \
    *value = static_cast<int>(device.member); \
    break;
    FLASH_ATTRIBUTE(MaxThreadsPerBlock, maxThreadsPerBlock)
    FLASH_ATTRIBUTE(MaxBlockDimX, maxThreadsDim[0])
    FLASH_ATTRIBUTE(MaxGridDimX, maxGridSize[0])
    FLASH_ATTRIBUTE(MaxSharedMemoryPerBlock, sharedMemPerBlock)
    FLASH_ATTRIBUTE(MaxSharedMemoryPerBlockOptin, sharedMemPerBlockOptin)
    FLASH_ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, sharedMemPerMultiprocessor)
    FLASH_ATTRIBUTE(ReservedSharedMemoryPerBlock, reservedSharedMemPerBlock)
    FLASH_ATTRIBUTE(TotalConstantMemory, totalConstMem)
    FLASH_ATTRIBUTE(WarpSize, warpSize)
    FLASH_ATTRIBUTE(MaxRegistersPerBlock, regsPerBlock)
    FLASH_ATTRIBUTE(MaxRegistersPerMultiprocessor, regsPerMultiprocessor)
    FLASH_ATTRIBUTE(ClockRate, clockRate)
    FLASH_ATTRIBUTE(GpuOverlap, deviceOverlap)
    FLASH_ATTRIBUTE(MultiProcessorCount, multiProcessorCount)
    FLASH_ATTRIBUTE(MemoryClockRate, memoryClockRate)
    FLASH_ATTRIBUTE(GlobalMemoryBusWidth, memoryBusWidth)
    FLASH_ATTRIBUTE(L2CacheSize, l2CacheSize)
    FLASH_ATTRIBUTE(MaxThreadsPerMultiProcessor, maxThreadsPerMultiProcessor)
    FLASH_ATTRIBUTE(MaxBlocksPerMultiprocessor, maxBlocksPerMultiProcessor)
    FLASH_ATTRIBUTE(ComputeCapabilityMajor, major)
    FLASH_ATTRIBUTE(ComputeCapabilityMinor, minor)
    FLASH_ATTRIBUTE(CooperativeLaunch, cooperativeLaunch)
    FLASH_ATTRIBUTE(UnifiedAddressing, unifiedAddressing)
    FLASH_ATTRIBUTE(ManagedMemory, managedMemory)
    FLASH_ATTRIBUTE(ConcurrentManagedAccess, concurrentManagedAccess)
    FLASH_ATTRIBUTE(ConcurrentKernels, concurrentKernels)
    FLASH_ATTRIBUTE(CanMapHostMemory, canMapHostMemory)
#undef FLASH_ATTRIBUTE
    default:
      *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = new flash_stream, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new flash_event{0}, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = flash::plain::now();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  *ms = static_cast<float>((stop->at - start->at) * 1e3);
  return cudaSuccess;
}
int flash_blocks_per_sm(int threads, std::size_t shared_bytes) {
  const flash::DeviceLimits limits = flash::machine::limits_of(flash::options().target_sm);
  const int by_shared = static_cast<int>(limits.shared_bytes_sm / (shared_bytes + 1024));
  return std::max(std::min({2048 / std::max(threads, 1), by_shared, 32}), 0);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* memory,
                                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const auto refuse = [](const std::string& what) {
    flash::plain::unsupported("cuTensorMapEncodeTiled with " + what +
                                  ", which asks for other boxes than of 64 columns of 16 bits, swizzled by 128 bytes,",
                              {"cuTensorMapEncodeTiled", 0});
  };
  if (type != CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
      type != CU_TENSOR_MAP_DATA_TYPE_UINT16)
    refuse("elements that are not 16 bits wide");
  if (rank < 2 || rank > 4) refuse(std::to_string(rank) + " dimensions");
  if (swizzle != CU_TENSOR_MAP_SWIZZLE_128B || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    refuse("another layout");
  if (box[0] != flash::tensor_map_cols || box[1] < 1 || box[1] > 256)
    refuse("a box of " + std::to_string(box[0]) + " x " + std::to_string(box[1]));
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (steps[i] != 1 || (i > 1 && box[i] != 1)) refuse("steps or a box in more than two dimensions");
    if (extents[i] < 1 || (i > 0 && strides[i - 1] % 16 != 0)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  static auto& names = *new std::list<std::string>;
  const auto origin = flash::find_memory(memory);
  const std::string& name = names.emplace_back(origin ? flash::name_of(origin->origin) : "memory of the host");
  map->map = {static_cast<std::byte*>(memory), name.c_str(), flash::traffic_id(name.c_str()), {1, 1, 1, 1}, {0, 0, 0},
              static_cast<int>(box[1])};
  for (cuuint32_t i = 0; i < rank; ++i) {
    map->map.extents[i] = static_cast<std::int64_t>(extents[i]);
    if (i > 0) map->map.strides[i - 1] = static_cast<std::int64_t>(strides[i - 1]);
  }
  map->mark = flash_map_mark;
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  const bool known = std::string(name) == "cuTensorMapEncodeTiled";
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (result != nullptr) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// assert() in kernels: the C library's would end the program.
extern "C" void __assert_fail(const char* expression, const char* file, unsigned line, const char*) noexcept {
  const flash::machine::sanitizer::Unwatched unwatched;
  if (flash::machine::Worker* const worker = flash::machine::Worker::running())
    worker->scheduler.abandon(flash::RuleId::trap, "assertion '" + std::string(expression) + "' fails at " +
                                                       flash::machine::words(flash::Site{file, static_cast<int>(line)}));
  std::fprintf(stderr, "%s:%u: assertion '%s' fails\n", file, line, expression);
  std::abort();
}
