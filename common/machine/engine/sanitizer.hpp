// What the sanitizers have to know about fibers. Without a sanitizer all of this is empty.
//
// ThreadSanitizer sees each CUDA thread as a thread (a "fiber"). Switches do not order anything; only order(), called where CUDA
// promises an order, does: so it reports every race between two CUDA threads, with both source lines.
#pragma once

#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/stack.hpp"

#ifdef FLASH_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {  // exported by the run-time library, but in no header
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#ifdef FLASH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace flash::machine::sanitizer {

#ifdef FLASH_TSAN
inline void* create_fiber() { return __tsan_create_fiber(0); }
inline void destroy_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
inline void* current_fiber() { return __tsan_get_current_fiber(); }
inline void switch_fiber(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
inline void release(void* token) { __tsan_release(token); }
inline void acquire(void* token) { __tsan_acquire(token); }

inline void stop_watching() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void watch_again() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
inline void* create_fiber() { return nullptr; }
inline void destroy_fiber(void*) {}
inline void* current_fiber() { return nullptr; }
inline void switch_fiber(void*) {}
inline void release(void*) {}
inline void acquire(void*) {}
inline void stop_watching() {}
inline void watch_again() {}
#endif

/// While one lives, what its fiber does is not watched. The simulator is not instrumented, but it calls functions that
/// ThreadSanitizer intercepts, such as memmove, and functions of templates, of which the linker may have taken a kernel file's.
/// Of several in one fiber the outermost counts for ThreadSanitizer: Scheduler::suspend() ends its work once, since a fiber may be left for good.
struct Unwatched {
  Unwatched() {
    if (instruments.unwatched++ == 0) stop_watching();
  }
  ~Unwatched() {
    if (--instruments.unwatched == 0) watch_again();
  }
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
