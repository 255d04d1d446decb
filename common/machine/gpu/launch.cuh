// Starting kernels under nvcc. The twin for the CPU is in common/machine/cpu/cuda.hpp.
#pragma once

#include "common/machine/error.hpp"
#include "common/machine/types.hpp"

#include <cuda_runtime.h>

#include <string>

namespace flash {
inline namespace gpu {

struct LaunchShape {
  dim3 grid;                     ///< blocks
  dim3 block;                    ///< threads of a block
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
  bool early = false;            ///< it may begin before the stream's previous kernel has ended: see griddepcontrol_wait()
};

/// Throws KernelError, naming kernel and shape, if the running GPU cannot hold such a launch; raises the kernel's limit of
/// dynamic shared memory beyond 48 KB where needed.
void prepare_launch(const char* name, const LaunchShape& shape, const void* kernel);

/// Throws DeviceError, naming kernel and shape, if the launch that was just made failed.
void check_launch(const char* name, const LaunchShape& shape);

/// The stream that this thread's launches go to: the default stream, until somebody sets another.
cudaStream_t& launch_stream();

/// Starts kernel<<<grid, block, shared_bytes>>>(args...) on launch_stream(), every error checked. No argument may narrow.
/// Early: CUDA calls it programmatic dependent launch; since sm_90.
template <class... Parameters, class... Arguments>
requires(sizeof...(Arguments) == sizeof...(Parameters) &&
         (Lossless<Parameters, Arguments> && ...)) void launch(const char* name, const LaunchShape& shape,
                                                               void (*kernel)(Parameters...), Arguments&&... arguments) {
  prepare_launch(name, shape, reinterpret_cast<const void*>(kernel));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{shape.grid, shape.block, shape.shared_bytes, launch_stream(), &early, shape.early ? 1u : 0u};
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));  // check_launch() sees its error
  check_launch(name, shape);
}

/// The dynamic shared memory of the block, as an array of T. Aligned to 1024 bytes.
/// `count` elements are meant to be used; the simulator checks that the launch provided them.
template <class T>
__device__ T* dynamic_shared([[maybe_unused]] std::size_t count) {
  extern __shared__ __align__(1024) unsigned char flash_dynamic_shared[];
  return reinterpret_cast<T*>(flash_dynamic_shared);
}

}  // namespace gpu
}  // namespace flash
