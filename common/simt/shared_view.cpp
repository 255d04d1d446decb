#include "common/simt/shared_view.hpp"

#include "common/simt/machine/sanitizer.hpp"
#include "common/simt/machine/worker.hpp"

namespace flash {
inline namespace simt {

constinit thread_local SharedWindow shared_window{};

void log_shared_access(Site site, const void* array, const void* address, std::size_t bytes, bool write) {
  const machine::sanitizer::Unwatched unwatched;
  machine::Worker& worker = machine::running_worker("SharedMatrix");
  const machine::Thread& self = worker.current();
  machine::watch_view(site, address, bytes, write);
  if (!worker.options().count) return;
  const bool kept = worker.shared_log().add(
      self.warp(), self.lane(), {site.file, site.line, static_cast<int>(bytes), reinterpret_cast<std::uintptr_t>(array), write},
      reinterpret_cast<std::uintptr_t>(address));
  if (!kept) worker.log_is_full(site);
}

void fail_outside_shared_matrix(int row, int col, int width, int rows, int cols, Site site) {
  fail(site, "shared matrix" + element_words(row, col, width) + " is outside: it has " + std::to_string(rows) + " rows and " +
                 std::to_string(cols) + " columns");
}

void fail_outside_dynamic_shared(const void* address, std::size_t bytes, Site site) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - shared_window.dynamic_start;
  fail(site, "an access to bytes " + std::to_string(offset) + ".." + std::to_string(offset + bytes - 1) +
                 " of dynamic shared memory, which has " + std::to_string(shared_window.dynamic_bytes) + " bytes");
}

}  // namespace simt
}  // namespace flash
