#include "common/binding/stream.hpp"

#include "common/device/check.cuh"

namespace flash {
namespace {

/// What `second` gets from now on waits for what `first` holds.
void order(cudaStream_t first, cudaStream_t second) {
  cudaEvent_t event{};
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  const cudaError_t recorded = cudaEventRecord(event, first);
  const cudaError_t waits = cudaStreamWaitEvent(second, event);
  cudaEventDestroy(event);  // CUDA keeps it as long as a stream waits for it
  check_cuda(recorded, "cudaEventRecord");
  check_cuda(waits, "cudaStreamWaitEvent");
}

}  // namespace

void wait_for(void* stream) {
  if (stream != nullptr) order(static_cast<cudaStream_t>(stream), cudaStreamLegacy);
}

void let_wait(void* stream) {
  if (stream != nullptr) order(cudaStreamLegacy, static_cast<cudaStream_t>(stream));
}

}  // namespace flash
