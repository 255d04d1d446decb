// Tiles for kernels of the zoo that let wgmma multiply.
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/test/zoo.hpp"
#include "common/machine/wgmma.cuh"

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

/// Two panels of 64 rows and mbarriers.
struct Shared {
  __half* panel = dynamic_shared<__half>(2 * 4096 + 128);
  __device__ __half* second() const { return panel + 4096; }
  __device__ Mbarrier& barrier(int i) const { return reinterpret_cast<Mbarrier*>(panel + 2 * 4096)[i]; }
  /// This thread's part of both.
  __device__ void fill() const {
    for (int i = me(); i < 2 * 4096; i += 128) panel[i] = __float2half(1.0f);
  }
};
constexpr std::size_t shared_bytes = 2 * (2 * 4096 + 128);

}  // namespace
}  // namespace flash
