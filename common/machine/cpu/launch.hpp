// Starting kernels on the CPU: the twin of common/machine/gpu/launch.cuh.
#pragma once

#include "common/machine/cpu/site.hpp"
#include "common/machine/cpu/types.hpp"
#include "common/machine/types.hpp"

#include <array>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>

namespace flash {
inline namespace simt {

struct LaunchShape {
  dim3 grid;                     ///< blocks
  dim3 block;                    ///< threads of a block
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
  Site site = Site::here();      ///< the line that gives the shape
  bool early = false;            ///< it may begin before the stream's previous kernel has ended: see griddepcontrol_wait()
};

/// A kernel with its arguments: invoke(call) runs it for the current CUDA thread.
struct KernelCall {
  const char* name;
  LaunchShape shape;
  void (*invoke)(const void* call);
  const void* call;
  std::size_t call_bytes;
  std::span<const volatile void* const> pointers;  ///< among its arguments
  bool cooperative = false;                        ///< its blocks are resident all at once
};

/// Runs all threads of all blocks to their end. Throws KernelError if the target GPU could not hold the launch or the
/// kernel did something that CUDA does not define.
void run_kernel(const KernelCall&);

/// Runs kernel(args...) on every thread of the grid. No argument may narrow.
template <class... Parameters, class... Arguments>
requires(sizeof...(Arguments) == sizeof...(Parameters) &&
         (Lossless<Parameters, Arguments> && ...)) void launch(const char* name, const LaunchShape& shape,
                                                               void (*kernel)(Parameters...), Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  } const call{kernel, {static_cast<Parameters>(arguments)...}};
  std::array<const volatile void*, sizeof...(Parameters)> pointers{};
  std::size_t count = 0;
  const auto note = [&]<class T>(const T& parameter) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) pointers[count++] = parameter;
  };
  std::apply([&](const auto&... parameter) { (note(parameter), ...); }, call.parameters);
  const auto invoke = [](const void* self) {
    const Call& it = *static_cast<const Call*>(self);
    std::apply(it.kernel, it.parameters);
  };
  run_kernel({name, shape, invoke, &call, sizeof call, {pointers.data(), count}});
}

/// The start of the block's dynamic shared memory, aligned to 1024 bytes; refuses more bytes than the launch provided.
void* dynamic_shared_bytes(std::size_t bytes, Site);

/// The dynamic shared memory of the block, as an array of `count` elements.
template <class T>
T* dynamic_shared(std::size_t count, Site site = Site::here()) {
  return static_cast<T*>(dynamic_shared_bytes(count * sizeof(T), site));
}

}  // namespace simt
}  // namespace flash
