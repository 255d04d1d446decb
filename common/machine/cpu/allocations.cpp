#include "common/machine/cpu/allocations.hpp"

#include "common/machine/engine/device_memory.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/race_detector.hpp"
#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace flash {
inline namespace simt {

void (*on_host_access)(const std::string& message) = nullptr;

namespace {

#ifdef __EMSCRIPTEN__
constexpr std::size_t hole = 4096, arena_bytes = 0;  // all of it is memory
#else
constexpr std::size_t hole = std::size_t{1} << 20;         // nobody can access it, and it costs nothing
constexpr std::size_t arena_bytes = std::size_t{1} << 44;  // likewise
#endif

std::byte* reserve(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

/// Where device memory lies, apart from all that the host may access. None if the system gives no such room.
struct Arena {
  std::byte* const begin = arena_bytes == 0 ? nullptr : reserve(arena_bytes);
  std::size_t used = 0;
  std::byte* take(std::size_t bytes) {
    if (begin == nullptr || bytes > arena_bytes - used) return nullptr;
    return begin + std::exchange(used, used + bytes);
  }
};

std::size_t in_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

machine::Allocation live(const void* inside) {
  const auto at = reinterpret_cast<std::uintptr_t>(inside);
  const auto found = machine::origin_near(at, 0);
  return found && !found->freed ? *found : machine::Allocation{};
}

}  // namespace

std::string name_of(const MemoryOrigin& origin) {
  return origin.kind == MemoryKind::symbol ? origin.call : origin.call + " at " + machine::words(origin.site);
}

void* allocate_memory(std::size_t bytes, const MemoryOrigin& origin) {
  require_host_memory(static_cast<double>(bytes), "a buffer");
  const std::size_t size = in_pages(bytes);
  static Arena arena;
  const bool apart = origin.kind == MemoryKind::device;
  std::byte* all = apart ? arena.take(size + hole) : nullptr;
  if (all == nullptr) {
    all = reserve(size + 2 * hole);
  } else {
    machine::keep_host_out({reinterpret_cast<std::uintptr_t>(arena.begin), arena_bytes});
  }
  std::byte* const begin = all + hole;
  if (all == nullptr || mprotect(begin, size, PROT_READ | PROT_WRITE) != 0)
    throw DeviceError("there is no main memory for a buffer of " + bytes_text(static_cast<double>(bytes)));
  std::fill_n(reinterpret_cast<std::uint32_t*>(begin), size / 4, apart ? 0xFFFFFFFFu : machine::unwritten_managed);
  register_memory(begin, bytes, origin);
  machine::set_poisoned(begin, true);
  return begin;
}

bool free_memory(void* begin, Site site) {
  const machine::Allocation found = live(begin);
  if (!unregister_memory(begin, site)) return false;
  const std::size_t size = in_pages(found.end - found.begin);
#ifndef __EMSCRIPTEN__
  mmap(begin, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
#else
  munmap(static_cast<std::byte*>(begin) - hole, size + 2 * hole);
#endif
  return true;
}

void register_memory(const void* begin, std::size_t bytes, const MemoryOrigin& origin) {
  machine::add_device_memory(begin, bytes, std::make_shared<const MemoryOrigin>(origin));
}

bool unregister_memory(const void* begin, Site site) { return machine::remove_device_memory(begin, site); }

void filled_by_host(const void* begin, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  const machine::Allocation whole = live(begin);
  if (!whole.poisoned) return;
  if (first == whole.begin && first + bytes >= whole.end) return machine::set_poisoned(begin, false);
  for (std::uintptr_t at = first; at < first + bytes; ++at) {
    machine::GlobalWrites::Page& page = machine::global_writes().pages[at / 4 / machine::page_words];
    page.written[at / 4 % machine::page_words] |= static_cast<std::uint8_t>(1u << at % 4);
  }
}

std::string unwritten_words(const void* begin, std::size_t bytes) {
  const machine::Allocation whole = live(begin);
  if (!whole.poisoned || whole.origin->kind != MemoryKind::device || !findings().complete) return "";
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  std::size_t count = 0, first = 0;  // in words; one of which a part has been written has padding
  const auto& pages = machine::global_writes().pages;
  for (std::uintptr_t word = at / 4, end = (at + bytes) / 4; word < end;) {
    const auto page = pages.find(word / machine::page_words);
    for (const std::uintptr_t next = (word / machine::page_words + 1) * machine::page_words; word < std::min(next, end);
         ++word) {
      if (page != pages.end() && page->second.written[word % machine::page_words] != 0) continue;
      if (count++ == 0) first = word * 4 - whole.begin;
    }
  }
  if (count == 0) return "";
  return std::to_string(count * 4) + " bytes that nobody has written, the first of them " + std::to_string(first) +
         " bytes into the " + std::to_string(whole.end - whole.begin) + " bytes of " + name_of(*whole.origin);
}

}  // namespace simt
}  // namespace flash
