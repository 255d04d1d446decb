// 08 Tensor cores, Hopper backward, steps 1 to 3, and turns.cuh in more/: dQ, of which each
// warpgroup multiplies a share.
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
  int row0 = warpgroup() % ROW_SHARES * WARPGROUP_ROWS, col0 = warpgroup() / ROW_SHARES * COLS;

  /// (8.16)  Issues dQ = dS K   [Br, Bc] x [Bc, d]. In both tiles rows are keys, and the sum runs
  /// down them: MN-major. Row row0 of dQ is column row0 of dS^T.
  template <class T, class StTile, class KTile>
  __device__ void issue(Accumulators<1, COLS / 8>& dQ, StTile& dSt, KTile& K) const {
    issue_product<T, Shape::Bc / 16>(dQ, dSt.mn_major(row0), K.mn_major(col0), /*add=*/false);
  }

  /// Offset of fragment n of the warp's 16 rows in dQ_accum (its order: parts/sum_of_dQ.cuh), for a
  /// tile that begins at query0.
  __device__ int offset(int query0, int n) const {
    return ((query0 + row0 + threadIdx.x % WARPGROUP / WARP * 16) / 16 * (Shape::Width / 8) +
            col0 / 8 + n) *
           4 * WARP;
  }
  /// The number of the warpgroup's fragments: none beyond the last column.
  __device__ int fragments() const { return min(COLS, Shape::Width - col0) / 8; }

  /// Adds to the sum, four elements at a time.
  __device__ void add(const Matrix<float>& sum, int query0,
                      const Accumulators<1, COLS / 8>& dQ) const {
    const auto first = sum.address(0, offset(query0, 0) + 4 * static_cast<int>(threadIdx.x % WARP));
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = dQ.elements[0][n];
      atomic_add4(first + 4 * n * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
  /// From `bulk` on: stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width],
                        const Accumulators<1, COLS / 8>& dQ) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = dQ.elements[0][n];
      dQ_smem.as<float4>(0, offset(0, n) + 4 * static_cast<int>(threadIdx.x % WARP)) =
          make_float4(dq[0], dq[1], dq[2], dq[3]);
    }
  }
};

}  // namespace
}  // namespace flash::tensor_cores
