// What runs before each memory access of a kernel, since kernels are compiled with -fsanitize=thread but without its library.
#pragma once

#include "common/simt/site.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace flash::machine {

class Watch;
struct Hopper;

enum class AccessKind : std::uint8_t { read, write, atomic };

/// Bytes of a tensor that the running thread is about to access.
struct Announced {
  std::uintptr_t begin = 0, end = 0;
  std::size_t left = 0;  ///< not yet accessed
  AccessKind kind = AccessKind::read;
};

/// Of one operating-system thread. Small, since every access of a kernel comes by here.
struct Instruments {
  /// What the running CUDA thread may still do before it counts as endless: an access to memory is one step.
  std::int64_t steps_left = std::numeric_limits<std::int64_t>::max();
  Watch* watch = nullptr;    ///< null: nobody looks for races
  Hopper* hopper = nullptr;  ///< null: the block has nothing of it in use
  bool looks = false;        ///< one of them is there
  int unwatched = 0;         ///< the simulator itself is at work
  /// The stack of the running CUDA thread; all of memory if none runs. What is outside is held against the Reach.
  std::uintptr_t stack_begin = 0;
  std::size_t stack_bytes = std::numeric_limits<std::size_t>::max();
  Announced announced;
};
extern constinit thread_local Instruments instruments;

/// Steps that a barrier or a warp operation counts as: they take the simulator about as long.
constexpr std::int64_t barrier_steps = 1024, warp_operation_steps = 64;

/// The kernel's next access is this one.
void announce(const void* address, std::size_t bytes, AccessKind);
/// An access through a view, which knows its line better than the access to memory that follows.
void watch_view(simt::Site, const void* address, std::size_t bytes, bool write);
/// An atomic of the TMA.
void watch_atomic(simt::Site, const void* address, std::size_t bytes);

/// Are kernels compiled that way? Not under AddressSanitizer and ThreadSanitizer, which have a library of their own.
#if defined(FLASH_ASAN) || defined(FLASH_TSAN)
constexpr bool instrumented = false;
#else
constexpr bool instrumented = true;
#endif

}  // namespace flash::machine
