// What AddressSanitizer has to know about fibers (without it that is empty), and what the race detector is not to see.
#pragma once

#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/stack.hpp"

#ifdef FLASH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace flash::machine::sanitizer {

/// While one lives, what its fiber does is not watched. The simulator is not instrumented, but it calls functions of templates, of which the
/// linker may have taken a kernel file's.
struct Unwatched {
  Unwatched() { ++instruments.unwatched; }
  ~Unwatched() { --instruments.unwatched; }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

#ifdef FLASH_ASAN
/// Before and after each switch of stacks.
inline void start_switch(const Stack& to) { __sanitizer_start_switch_fiber(nullptr, to.bottom, to.bytes); }
inline void finish_switch(Stack* from = nullptr) {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (from != nullptr) *from = {const_cast<std::byte*>(static_cast<const std::byte*>(bottom)), bytes};
}
inline void poison(const void* memory, std::size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(const void* memory, std::size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }
#else
inline void start_switch(const Stack&) {}
inline void finish_switch(Stack* = nullptr) {}
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

}  // namespace flash::machine::sanitizer
