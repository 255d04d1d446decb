// 08 Tensor cores, Hopper, all steps: which devices and compilations have wgmma.
#pragma once

#include "08_tensor_cores/parts/launch.cuh"
#include "common/machine/hopper.cuh"

namespace flash::tensor_cores {
namespace {

/// wgmma exists on sm_90a only.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool COMPILED_WITH_WGMMA = false;
#else
constexpr bool COMPILED_WITH_WGMMA = true;
#endif

inline std::string refuse_unless_sm90(const Problem&, const DeviceLimits& limits) {
  if (limits.sm != 90)
    return "it uses wgmma, which only compute capability 9.0 has" + here_it_is(limits);
  return limits.wgmma ? ""
                      : "it uses wgmma, and this program was compiled without: "
                        "CMAKE_CUDA_ARCHITECTURES has to be 90a";
}

}  // namespace
}  // namespace flash::tensor_cores
