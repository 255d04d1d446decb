// What runs before each memory access of a kernel, since kernels are compiled with -fsanitize=thread but without its library.
#pragma once

#include "common/machine/cpu/element_ref.hpp"
#include "common/machine/cpu/site.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace flash::machine {

class RaceDetector;
struct Hopper;

using AccessKind = simt::Touch;

struct Region {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool holds(std::uintptr_t address) const { return address - begin < bytes; }
  bool holds(std::uintptr_t address, std::size_t size) const { return holds(address) && address - begin + size <= bytes; }
};

/// Bytes of a tensor that the running thread is about to access.
struct Announced {
  Region bytes;
  std::size_t left = 0;  ///< of them, not yet accessed
  AccessKind kind = AccessKind::read;
  simt::Site site{};  ///< whose access it is, if not that of the line that makes it
};

/// Of one operating-system thread. Small, since every access of a kernel comes by here.
struct Instruments {
  /// What the running CUDA thread may still do before it counts as endless: an access to memory is one step.
  std::int64_t steps_left = std::numeric_limits<std::int64_t>::max();
  RaceDetector* watch = nullptr;  ///< null: nobody looks for races
  Hopper* hopper = nullptr;       ///< null: the block has nothing of it in use
  bool looks = false;             ///< one of them is there
  int unwatched = 0;              ///< the simulator itself is at work
  bool in_block = false;          ///< atomics are those of a block (AtomicsOfBlock)
  // Where the running CUDA thread may access memory at will; what is outside is held against the Reach.
  Region stack{0, std::numeric_limits<std::size_t>::max()};  ///< its own; all of memory if none runs
  Region dynamic;                                            ///< shared memory
  Region locals, machine;  ///< thread-local variables, among them static shared memory; the simulator's part, to be read only
  Announced announced;
};
extern constinit thread_local Instruments instruments;

/// Steps that a barrier, a warp operation or a view's access counts as: they take the simulator about as long.
constexpr std::int64_t barrier_steps = 1024, warp_operation_steps = 64, view_steps = 8;

/// From now on the host's part of a kernel file may not access this memory, on this operating-system thread.
void keep_host_out(Region device);
/// Back from a kernel.
void reset_instruments();

/// The kernel's next access is this one.
void announce(const void* address, std::size_t bytes, AccessKind, simt::Site = {});
/// Ends the block if the kernel may not access these bytes. For copies, which the simulator makes.
void require_reach(simt::Site, const void* address, std::size_t bytes, AccessKind);
/// Where the code of a kernel that is running returns to, and where the functions around it do, from inside out.
struct CallPlace {
  std::uintptr_t address = 0;
  std::array<std::uintptr_t, 3> callers{};  ///< 0: not known
};
/// Of a function of the simulator that a kernel has called, by the address it returns to and its frame. Kernels keep frame pointers
/// (common/cmake/options.cmake): a frame begins with that of the caller, and the address to return to comes next.
CallPlace call_place(const void* returns_to, const void* frame);
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(FLASH_ASAN)
#define FLASH_FRAME __builtin_frame_address(0)
#else
#define FLASH_FRAME nullptr
#endif
#if defined(__EMSCRIPTEN__)
#define FLASH_CALLED_FROM (::flash::machine::CallPlace{})
#else
#define FLASH_CALLED_FROM ::flash::machine::call_place(__builtin_return_address(0), FLASH_FRAME)
#endif

/// An access through a view, which knows its line better than the access to memory that follows.
void watch_view(simt::Site, const void* address, std::size_t bytes, bool write, const CallPlace& = {});
/// An atomic of the TMA.
void watch_atomic(simt::Site, const void* address, std::size_t bytes);

/// Are kernels compiled that way? Not under AddressSanitizer, which has a library of its own.
#ifdef FLASH_ASAN
constexpr bool instrumented = false;
#else
constexpr bool instrumented = true;
#endif

}  // namespace flash::machine
