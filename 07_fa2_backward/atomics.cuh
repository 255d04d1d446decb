// 07 FlashAttention-2, backward: the sum of dQ by atomics, for one_kernel and the kernels of more/.
#pragma once

#include "07_fa2_backward/parts.cuh"

namespace flash::fa2_backward {
namespace {

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
