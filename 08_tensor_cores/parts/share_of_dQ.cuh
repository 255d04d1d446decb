// 08 Tensor cores, Hopper backward, steps 1 to 3: dQ, of which each warpgroup multiplies a share.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores {
namespace {

/// A warpgroup's share of dQ [Br, Width]: 64 rows and all columns, or 64 columns if two warpgroups
/// share the rows.
template <class Shape>
struct ShareOfDQ {
  static constexpr int ROW_SHARES = Shape::Br / WARPGROUP_ROWS,
                       COL_SHARES = Shape::CONSUMERS / ROW_SHARES;
  static constexpr int COLS = COL_SHARES == 1 ? Shape::Width : PANEL;
  static_assert(COL_SHARES * ROW_SHARES == Shape::CONSUMERS && COL_SHARES * COLS >= Shape::Width,
                "the warpgroups make all of dQ");

  int index = warpgroup();             // of the share
  Accumulators<1, COLS / 8> acc = {};  // [16, COLS] in each warp

  __device__ int row0() const { return index % ROW_SHARES * WARPGROUP_ROWS; }
  __device__ int col0() const { return index / ROW_SHARES * COLS; }
  /// How many of its fragments of 8 columns exist: none beyond the last column.
  __device__ int fragments() const { return min(COLS, Shape::Width - col0()) / 8; }

  /// (8.16)  Starts dQ = dS K   [Br, Bc] x [Bc, d]. In both tiles rows are keys, and the sum runs
  /// down them: MN-major. Row row0 of dQ is column row0 of dS^T.
  template <class DStTile, class KTile>
  __device__ void issue(DStTile& dSt, KTile& K) {
    // Write after read: the previous dQ, in the same registers, has been added or stored.
    wgmma_fence();
    issue_product<typename KTile::T, Shape::Bc / 16>(acc, dSt.mn_major(row0()), K.mn_major(col0()),
                                                     /*add=*/false);
    wgmma_commit();
  }

  /// Offset of this lane's four elements of fragment n of the warp's 16 rows in dQ_accum (its
  /// order: parts/sum_of_dQ.cuh), for a tile that begins at query0.
  __device__ int offset(int query0, int n) const {
    const unsigned row = query0 + row0() + threadIdx.x % WARPGROUP / WARP * 16;
    const int fragment = row / 16 * (Shape::Width / 8) + col0() / 8 + n;
    return (fragment * WARP + static_cast<int>(threadIdx.x % WARP)) * 4;
  }
  /// Adds to the sum, four elements at a time.
  __device__ void add(const Matrix<float>& sum, int query0) const {
    const auto first = sum.address(0, offset(query0, 0));
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = acc.elements[0][n];
      atomic_add4(first + 4 * n * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
  /// From step 3, `bulk`, on: stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width]) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = acc.elements[0][n];
      dQ_smem.as<float4>(0, offset(0, n)) = make_float4(dq[0], dq[1], dq[2], dq[3]);
    }
  }
};

}  // namespace
}  // namespace flash::tensor_cores
