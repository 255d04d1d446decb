// The messages of views, and the ids under which their bytes are counted.
#include "common/machine/cpu/view.hpp"

#include "common/machine/cpu/options.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"

#include <map>
#include <mutex>

namespace flash {
namespace {

std::mutex ids_mutex;

/// Id 0 is for views that do not come from a tensor.
std::map<std::string, int>& ids() {
  static std::map<std::string, int> names{{"", 0}};
  return names;
}

/// "1 head", "2 heads"
std::string counted(int n, const char* one, const char* many) { return std::to_string(n) + " " + (n == 1 ? one : many); }

/// "K[b=0, h=1]", "K", or "a matrix".
std::string words(const Origin& origin) {
  const std::string name = *origin.name == '\0' ? "a view" : origin.name;
  if (origin.b < 0) return name;
  return name + "[b=" + std::to_string(origin.b) + ", h=" + std::to_string(origin.h) + "]";
}

}  // namespace

inline namespace simt {

void count_access(int id, const void* address, std::size_t bytes, Touch touch, Site site) {
  machine::Worker* const worker = machine::Worker::running();
  if (worker == nullptr || bytes == 0) return;
  const bool reads = touch != Touch::write, writes = touch != Touch::read;
  Traffic& traffic = worker->block.traffic(id);
  if (reads) traffic.read += bytes;
  if (writes) traffic.written += bytes;
  worker->scheduler.count_steps(machine::view_steps, site);
  machine::announce(address, bytes, touch);
  if (!worker->block.options.count && !worker->block.options.watch) return;
  const machine::sanitizer::Unwatched unwatched;
  if (touch != Touch::atomic) machine::watch_view(site, address, bytes, writes, FLASH_CALLED_FROM);
  if (!worker->block.options.count) return;
  const machine::Thread& self = worker->current();
  for (const bool write : {false, true}) {
    if (write ? !writes : !reads) continue;
    const bool kept = worker->block.global_log.add(
        self.warp(), self.lane(), {site.file, site.line, static_cast<int>(bytes), static_cast<std::uintptr_t>(id), write},
        reinterpret_cast<std::uintptr_t>(address));
    if (!kept) worker->log_is_full(site);
  }
}

void announce_atomic(const void* address, std::size_t bytes) { machine::announce(address, bytes, Touch::atomic); }

void name_tensor(const TensorRef& t) { machine::name_memory(t); }

int traffic_id(const TensorRef& t) {
  name_tensor(t);
  return traffic_id(t.name);
}

int traffic_id(const char* name) {
  const std::lock_guard lock(ids_mutex);
  return ids().try_emplace(name, static_cast<int>(ids().size())).first->second;
}

std::string element_words(int row, int col, int width) {
  std::string text = "(" + std::to_string(row) + ", " + std::to_string(col);
  if (width > 1) text += ".." + std::to_string(col + width - 1);
  return text + ")";
}

void fail_outside_matrix(const Origin& origin, int row, int col, int width, int rows, int cols, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  fail(RuleId::out_of_bounds, site,
       words(origin) + element_words(origin.row + row, col, width) + " is outside: it has " +
           std::to_string(origin.row + rows) + " rows and " + std::to_string(cols) + " columns");
}

void fail_outside_vector(const Origin& origin, int index, int size, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  fail(RuleId::out_of_bounds, site,
       words(origin) + "(" + std::to_string(origin.row + index) + ") is outside: it has " + std::to_string(origin.row + size) +
           " elements");
}

void fail_outside_tensor(const Origin& origin, int b, int h, int batches, int heads, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  fail(RuleId::out_of_bounds, site,
       words(origin) + " has " + counted(batches, "batch", "batches") + " and " + counted(heads, "head", "heads") +
           ": there is no batch " + std::to_string(b) + ", head " + std::to_string(h));
}

void fail_misaligned(const char* what, const void* address, std::size_t alignment, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(address) % alignment;
  fail(RuleId::misaligned, site,
       "misaligned access: the address of " + std::string(*what == '\0' ? "the element" : what) + " must be a multiple of " +
           std::to_string(alignment) + ", it is " + std::to_string(beyond) + " bytes beyond one");
}

}  // namespace simt

namespace machine {

int traffic_ids() {
  const std::lock_guard lock(ids_mutex);
  return static_cast<int>(ids().size());
}

std::vector<std::string> traffic_names() {
  const std::lock_guard lock(ids_mutex);
  std::vector<std::string> names(ids().size());
  for (const auto& [name, id] : ids()) names[static_cast<std::size_t>(id)] = name;
  return names;
}

}  // namespace machine
}  // namespace flash
