#include "common/machine/cpu/shared_view.hpp"

#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"

namespace flash {
inline namespace simt {

void log_shared_access(Site site, const void* array, const void* address, std::size_t bytes, bool write) {
  machine::Worker* const worker = machine::Worker::running();
  if (worker == nullptr || (!worker->block.options.count && !worker->block.options.watch)) return;
  const machine::sanitizer::Unwatched unwatched;
  machine::watch_view(site, address, bytes, write, FLASH_CALLED_FROM);
  if (!worker->block.options.count) return;
  const machine::Thread& self = worker->current();
  const bool kept = worker->block.shared_log.add(
      self.warp(), self.lane(), {site.file, site.line, static_cast<int>(bytes), reinterpret_cast<std::uintptr_t>(array), write},
      reinterpret_cast<std::uintptr_t>(address));
  if (!kept) worker->log_is_full(site);
}

void fail_outside_shared_matrix(int row, int col, int width, int rows, int cols, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  fail(RuleId::out_of_bounds, site,
       "shared matrix" + element_words(row, col, width) + " is outside: it has " + std::to_string(rows) + " rows and " +
           std::to_string(cols) + " columns");
}

void check_dynamic_shared(const void* address, std::size_t bytes, Site site) {
  const machine::Worker* const worker = machine::Worker::running();
  if (worker == nullptr) return;
  const machine::SharedMemory& shared = worker->block.shared;
  if (!shared.beyond(address, bytes)) [[likely]]
    return;
  const machine::sanitizer::Unwatched unwatched;
  fail(RuleId::out_of_bounds, site, "an access to " + shared.words(address, bytes));
}

}  // namespace simt
}  // namespace flash
