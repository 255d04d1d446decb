#include "common/machine/engine/stack.hpp"

#include "common/machine/error.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace flash::machine {
namespace {

// The hole is as large as the largest frame that should still be caught: a function that skips it would write into the next stack.
#ifdef __EMSCRIPTEN__
constexpr std::size_t guard_bytes = 0;  // nothing can be noticed there, and all of it is memory
constexpr std::size_t stack_bytes = 96 * 1024;
#else
constexpr std::size_t guard_bytes = 64 * 1024;
constexpr std::size_t stack_bytes = 256 * 1024;  // the sanitizers make frames larger; memory that is not touched costs nothing
#endif
constexpr std::size_t pitch = guard_bytes + stack_bytes;

// Equal offsets within pages would put the busy ends of all stacks into the same few sets of the L1 cache.
constexpr std::size_t stagger_step = 17 * 16, stagger_range = 4096;

}  // namespace

StackPool::~StackPool() { release(); }

void StackPool::release() {
  if (memory_ != nullptr) munmap(memory_, static_cast<std::size_t>(count_) * pitch);
  memory_ = nullptr;
  count_ = 0;
}

void StackPool::reserve(int count) {
  if (count <= count_) return;
  release();
  const std::size_t bytes = static_cast<std::size_t>(count) * pitch;
  const auto refuse = [&] {
    throw DeviceError("no memory for the stacks of " + std::to_string(count) + " simulated threads, " + std::to_string(bytes) +
                      " bytes: " + std::strerror(errno));
  };
  void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) refuse();
  memory_ = static_cast<std::byte*>(memory);
  count_ = count;
  for (int i = 0; i < count; ++i) {
    if (mprotect(memory_ + static_cast<std::size_t>(i) * pitch + guard_bytes, stack_bytes, PROT_READ | PROT_WRITE) != 0)
      refuse();
  }
}

Stack StackPool::operator[](int index) const {
  const auto i = static_cast<std::size_t>(index);
  return {memory_ + i * pitch + guard_bytes, stack_bytes - i * stagger_step % stagger_range};
}

MemoryRange StackPool::range() const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_);
  return {begin, begin + static_cast<std::size_t>(count_) * pitch};
}

int StackPool::owner(const void* address) const {
  const MemoryRange all = range();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= all.begin && at < all.end ? static_cast<int>((at - all.begin) / pitch) : -1;
}

bool StackPool::in_guard(const void* address, int index) const {
  const auto start = reinterpret_cast<std::uintptr_t>(memory_) + static_cast<std::size_t>(index) * pitch;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= start && at < start + guard_bytes;
}

}  // namespace flash::machine
