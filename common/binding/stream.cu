#include "common/binding/stream.hpp"

#include "common/machine/error.hpp"
#include "common/machine/gpu/check.cuh"
#include "common/machine/gpu/launch.cuh"

namespace flash {

int current_gpu() {
  int gpu = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  return gpu;
}

void launch_on(void* stream) { launch_stream() = static_cast<cudaStream_t>(stream); }

void copy_to_gpu(void* to, const void* from, std::size_t bytes) {
  cudaStreamCaptureStatus status{};
  check_cuda(cudaStreamIsCapturing(launch_stream(), &status), "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone)
    throw UsageError(
        "a CUDA graph cannot capture packed sequences: a replay would copy their offsets from memory that is gone");
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, launch_stream()), "cudaMemcpyAsync");
}

}  // namespace flash
