// CUDA C++ for a host compiler: what a kernel file needs when common/parts/kernel.cuh is read without nvcc. Each CUDA thread becomes
// a fiber that runs on the CPU (engine/scheduler.hpp). Barriers and warp operations pass control on, and loops that wait for memory.
#pragma once

// The function and memory qualifiers. A block runs on one operating-system thread, so that a thread_local is shared by
// exactly the threads of a block. Where the file format allows, all of them lie in a section of their own, which is filled with
// NaN before each block (engine/shared_memory.cpp).
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#if defined(__ELF__) || defined(__EMSCRIPTEN__)
#define __shared__ static thread_local __attribute__((section("flash_shared")))
#else
#define __shared__ static thread_local
#endif

#if defined(__clang__) && defined(__ELF__)
#if __has_feature(thread_sanitizer)
// clang copies structures by calls of the C library. In a kernel's file they are calls that are watched.
asm("memcpy = __tsan_memcpy; memmove = __tsan_memmove; memset = __tsan_memset");
#endif
#endif

#include "common/machine/cpu/atomic.hpp"
#include "common/machine/cpu/launch.hpp"
#include "common/machine/cpu/math.hpp"
#include "common/machine/cpu/shared_view.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/cpu/types.hpp"
#include "common/machine/cpu/view.hpp"
#include "common/machine/cpu/warp.hpp"
