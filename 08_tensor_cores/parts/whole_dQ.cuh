// 08 Tensor cores, Hopper backward, steps 4 and 5: dQ of one warpgroup, the maker.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores {
namespace {

/// All of dQ [Br, Width] in one warpgroup, 64 rows at a time.
template <class Shape>
struct WholeDQ {
  static constexpr int PRODUCTS = Shape::Br / WARPGROUP_ROWS, FRAGMENTS = Shape::Width / 8;
  Accumulators<1, FRAGMENTS> acc[PRODUCTS];

  /// (8.16)  Starts dQ = dS K, as ShareOfDQ does.
  template <class DStTile, class KTile>
  __device__ void issue(DStTile& dSt, KTile& K) {
    // Write after read: the previous dQ, in the same registers, has been stored.
    wgmma_fence();
#pragma unroll
    for (int product = 0; product < PRODUCTS; ++product) {
      issue_product<typename KTile::T, Shape::Bc / 16>(
          acc[product], dSt.mn_major(product * WARPGROUP_ROWS), K.mn_major(), /*add=*/false);
    }
    wgmma_commit();
  }

  /// Stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width]) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int product = 0; product < PRODUCTS; ++product) {
      const int row = product * WARPGROUP_ROWS +
                      static_cast<int>(threadIdx.x) % WARPGROUP / WARP * 16;  // the warp's first
#pragma unroll
      for (int n = 0; n < FRAGMENTS; ++n) {
        const float(&dq)[4] = acc[product].elements[0][n];
        const int fragment = row / 16 * FRAGMENTS + n;
        dQ_smem.as<float4>(0, fragment * 4 * WARP + 4 * static_cast<int>(threadIdx.x % WARP)) =
            make_float4(dq[0], dq[1], dq[2], dq[3]);
      }
    }
  }
};

}  // namespace
}  // namespace flash::tensor_cores
