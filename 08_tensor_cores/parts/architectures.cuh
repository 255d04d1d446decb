// 08 Tensor cores, steps without wgmma: which architectures a kernel is compiled for.
#pragma once

#include "common/machine/cuda.cuh"

namespace flash::tensor_cores {
namespace {

/// Of the architecture that the code is compiled for.
#ifdef __CUDA_ARCH__
constexpr int COMPILED_SM = __CUDA_ARCH__ / 10;
#else
constexpr int COMPILED_SM = 90;
#endif

/// The oldest architecture for which a kernel is compiled. A block has at most 64 KB of shared
/// memory on sm_75, 163 KB on sm_80. On sm_75 a product also takes two instructions, for which a
/// warp with two row fragments and 64 columns of O lacks registers.
constexpr int min_sm(std::size_t shared_bytes, bool fills_registers) {
  if (shared_bytes > 163 << 10) return 90;
  return shared_bytes > 64 << 10 || fills_registers ? 80 : 75;
}

}  // namespace
}  // namespace flash::tensor_cores
