// CUDA's runtime for a plain .cu file that a host compiler reads: common/run includes this first. It gives CUDA's names and no others: what belongs to
// the simulator stays in namespace flash. rewrite.py turns launches, dynamic shared memory and device variables into calls of flash::plain.
#pragma once

#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/machine/cpu/cuda.hpp"
#include "common/machine/cpu/hopper.hpp"
#include "common/machine/cpu/ptx.hpp"

#include "vector_types.h"

#if defined(__ELF__) && !defined(__clang__)  // g++ would guard the arrays of a class, and the guard is no memory of the block
#undef __shared__
#define __shared__ static __constinit thread_local __attribute__((section("flash_shared")))
#endif

// What rewrite.py puts before each variable in shared memory: who runs over the end of another one comes here.
#ifdef __ELF__
#define FLASH_MARGIN FLASH_MARGIN_OF(__COUNTER__)
#define FLASH_MARGIN_OF(number) FLASH_MARGIN_NAMED(number)
#define FLASH_MARGIN_NAMED(number) __shared__ __attribute__((used)) int flash_margin_##number[1024];
#else
#define FLASH_MARGIN
#endif

// The compiler does not tell of a structure that a call takes by value straight from memory. Inlined, the call is a copy, of which it tells.
#undef __global__
#define __global__ __attribute__((flatten))

#define __CUDACC__ 1
// A CUDA Toolkit's headers, if there is one, have nothing to add.
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __LIBRARY_TYPES_H__
#define __VECTOR_TYPES_H__
#define __VECTOR_FUNCTIONS_H__
#define CUDART_VERSION 12060
#define CUDA_VERSION 12060
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 6
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define __managed__
#define __grid_constant__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __block_size__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define CUDARTAPI
#define CUDART_CB
#define CUDAAPI
// What the simulator itself does in a kernel's source: not an access of the kernel.
#define FLASH_UNWATCHED __attribute__((no_sanitize("thread")))
// C++17, which most CUDA code is written for, has no std::lerp to collide with.
#define lerp flash_lerp

#include "device_functions.h"

// ---- launches, for rewrite.py ----------------------------------------------------------------------------------------------------------

typedef struct flash_stream* cudaStream_t;
typedef struct flash_event* cudaEvent_t;

namespace flash::plain {

/// Runs a kernel, watched unless the same has been watched long enough, and keeps what was found for the report at the program's end.
void run(const KernelCall&, bool cooperative = false);

template <class Kernel, class... A>
void run_with(const char* name, const LaunchShape& shape, Kernel kernel, bool cooperative, A... arguments) {
  struct Call {
    Kernel kernel;
    std::tuple<A...> arguments;
  } const call{kernel, {arguments...}};
  const auto invoke = [](const void* self) FLASH_UNWATCHED {
    const Call& it = *static_cast<const Call*>(self);
    std::apply(it.kernel, it.arguments);
  };
  run({name, shape, invoke, &call, sizeof call, {}}, cooperative);
}

template <class Kernel>
struct Launch {
  const char* name;
  LaunchShape shape;
  Kernel kernel;
  template <class... A>
  void operator()(A... arguments) const {
    run_with(name, shape, kernel, false, arguments...);
  }
};
template <class Kernel>
struct Named {
  const char* name;
  Kernel kernel;
  Launch<Kernel> flash_on(dim3 grid, dim3 block, std::size_t shared = 0, cudaStream_t = nullptr, Site site = Site::here()) const {
    return {name, {grid, block, shared, site}, kernel};
  }
};
/// flash_kernel("k<T>", [](auto... a) { k<T>(a...); }).flash_on(grid, block, bytes, stream)(arguments...) is k<T><<<grid, block, bytes, stream>>>(arguments...)
template <class Kernel>
Named<Kernel> flash_kernel(const char* name, Kernel kernel) {
  return {name, kernel};
}

/// A kernel that a function of the runtime starts.
template <class... P>
struct Function {
  const char* name;
  void (*function)(P...);
};
template <class... P>
Function<P...> function(const char* name, void (*function)(P...)) {
  return {name, function};
}

template <class T>
T* dynamic(Site site = Site::here()) {
  return static_cast<T*>(dynamic_shared_bytes(0, site));
}

/// A __device__, __constant__ or __managed__ variable.
struct Variable {
  Variable(const volatile void* at, std::size_t bytes, const char* name, bool constant, Site site = Site::here());
};

__attribute__((format(printf, 1, 2))) int print(const char* format, ...);
[[noreturn]] void unsupported(const std::string& what, Site);
[[noreturn]] void unsupported(const char* what, Site);  // for kernels, whose memory is not the host's

}  // namespace flash::plain

/// What kernels print goes to stdout as on a GPU.
template <class... Values>
int printf(const char* format, Values... values) {
  return ::flash::plain::print(format, values...);
}

#include "cuda_runtime_api.h"
#include "flash_ptx.hpp"
