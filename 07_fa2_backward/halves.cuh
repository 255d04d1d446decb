// 07 FlashAttention-2, backward, from step 2 on: a block has 8 warps in two halves that do the same
// work on different matrices, because the products form pairs that share no operand:
//   half 0: S = Q K^T, then P;   dV += P^T dO      half 1: dP = dO V^T, then dS;   dK += dS^T Q
// and both compute dQ = dS K, from column dQ_col0 on. The 4 warps of a half divide the rows.
#pragma once

#include "07_fa2_backward/parts.cuh"

namespace flash::fa2_backward {
namespace {

/// The tile that this thread's half of the block works on. Only the pointer is selected: both have
/// the same size.
__device__ inline SharedMatrix<float> of_half(bool first_half, const SharedMatrix<float>& first,
                                              const SharedMatrix<float>& second) {
  return {first_half ? first.data : second.data, first.rows, first.cols, first.stride};
}

// ---- From step 3 on: the sum of dQ in HBM -------------------------------------------------------

/// Adds C to M at (row0, col0) by atomics, since other blocks add to the same elements.
template <class Tile>
__device__ void add_atomically(const Matrix<float>& M, int row0, int col0, const Tile& C) {
  static_assert(Tile::COL_RUN == 4, "an addition takes four neighbouring columns");
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) {
    const int row = row0 + Tile::row(r);
    if (row >= M.rows) continue;
#pragma unroll
    for (int c = 0; c < Tile::COLS; c += 4) {
      const int col = col0 + Tile::col(c);
      const float* const run = &C.elements[r][c];
      if (col < M.cols)
        atomic_add4(M.address(row, col), make_float4(run[0], run[1], run[2], run[3]));
    }
  }
}

}  // namespace
}  // namespace flash::fa2_backward
