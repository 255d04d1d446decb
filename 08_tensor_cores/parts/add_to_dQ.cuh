// 08 Tensor cores, backward, from step 2 on: a tile's share of dQ. (8.16) sums over keys, which all
// warps own: dS^T goes through shared memory, to be left_transposed() in a product that WarpGrid
// divides anew, with K as right().
#pragma once

#include "08_tensor_cores/parts/backward_tiles.cuh"

namespace flash::tensor_cores {
namespace {

/// How the warps of a block divide dQ [Br, cols]: into rows of warps times columns of warps, using
/// all warps if possible, and loading as little of dS and K as possible.
struct WarpGrid {
  int rows = 1, cols = 1;

  constexpr WarpGrid(int warps, int Br, int width) {
    for (int r = 1; r <= Br / 16; ++r) {
      for (int c = 1; c <= width / 16; ++c) {
        if (Br / 16 % r != 0 || width / 16 % c != 0 || r * c > warps || r * c < rows * cols)
          continue;
        if (r * c > rows * cols || c * Br + r * width < cols * Br + rows * width) {
          rows = r;
          cols = c;
        }
      }
    }
  }
};

/// (8.16)  The warp's share of dQ = dS K, in the block's columns from col0 on, added to dQ_accum,
/// whose order is in before_and_after.cuh. row0: the first query of the tile there. thread: the
/// thread of the block that asks for its share.
template <class Shape, class T>
__device__ void add_to_dQ(const Matrix<float>& dQ_accum, int row0, const Tile<T, Shape::Br>& dSt,
                          const Tile<T, Shape::Width>& K, int col0 = 0,
                          unsigned thread = threadIdx.x) {
  constexpr WarpGrid grid = Shape::DQ_WARPS;
  constexpr int row_fragments = Shape::Br / 16 / grid.rows,
                col_fragments = Shape::COLS / 8 / grid.cols;
  const int warp = thread / WARP, warp_row = warp % grid.rows * 16 * row_fragments;
  const int warp_col = warp / grid.rows * 8 * col_fragments;
  if (warp_col >= Shape::COLS) return;  // at Width 96 some warps have no share
  Accumulators<row_fragments, col_fragments> dQ(0.0f);
  add_product(dQ, dSt.template left_transposed<Shape::Bc>(warp_row), K.right(col0 + warp_col));
  const int first = (row0 + warp_row) / 16 * (Shape::Width / 8) + (col0 + warp_col) / 8;
  const auto held_by_lane =
      dQ_accum.address(0, 4 * (first * WARP + static_cast<int>(thread) % WARP));
#pragma unroll
  for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
    for (int n = 0; n < col_fragments; ++n) {
      const float(&dq)[4] = dQ.elements[i][n];
      atomic_add4(held_by_lane + 4 * (i * Shape::Width / 8 + n) * WARP,
                  make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
}

/// How many key/value heads of so many tiles of keys each to run at once, for steps that sum dQ in
/// HBM: those whose Q, dO and dQ_accum fit in L2 together, and at least enough to give every SM a
/// block.
template <class Shape>
int heads_at_once_backward(const Attention& a, int tiles) {
  const Problem& p = a.problem;
  const std::int64_t bytes_of_element = 2 + 2 + 4;  // of Q, dO, dQ_accum
  const int in_L2 = heads_in_L2(
      p.B * p.Hkv, std::int64_t{p.Nq} * p.group_size() * Shape::Width * bytes_of_element);
  return std::max(in_L2, heads_in_a_wave(a, tiles));
}

}  // namespace
}  // namespace flash::tensor_cores
