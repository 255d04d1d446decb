// Error checks of CUDA run-time calls.
#pragma once

#include "common/machine/error.hpp"

#include <cuda_runtime.h>

#include <string>

namespace flash {

/// Throws DeviceError "what: CUDA's words (CUDA's name)" unless the call succeeded.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw DeviceError(what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

inline int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace flash
