// 08 Tensor cores, Hopper backward, steps 4 and 5: dQ of one warpgroup, the maker; the adder.
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

/// One thread: adds tiles of dQ to dQ_accum, each as soon as the maker has stored it. It may end
/// while additions are in flight: the TMA has read shared memory, and the kernel as a whole ends
/// only when they are complete, which convert_kernel waits for.
template <class T, class Shape>
__device__ void add_dQ(Shared<T, Shape>& shared, const Problem& problem,
                       const Tensor<float>& dQ_accum, const KeyWork<Shape>& work) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    // Read after write: dQ_i is complete.
    wait_full(shared.full_dQ, iteration % 2);
    const auto target = dQ_accum.head(work.b, at.h).address(0, at.query0 * Shape::Width);
    bulk_reduce_add(target, shared.dQ, BYTES);
    bulk_commit();
    // Write after read: the TMA has read dQ_i, whose buffer the maker fills next.
    bulk_wait_read<0>();
    mbarrier_arrive(shared.empty_dQ);
  }
}

}  // namespace
}  // namespace flash::tensor_cores
