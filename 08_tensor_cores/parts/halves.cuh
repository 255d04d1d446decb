// 08 Tensor cores, backward, step 3: the choice of a half's matrices, the exchange of P^T between the halves,
// and the addition to dQ.
#pragma once

#include "08_tensor_cores/parts/sum_of_dQ.cuh"
#include "08_tensor_cores/parts/tile.cuh"

namespace flash::tensor_cores {
namespace {

/// The tile that this thread's half works on. Only the pointer is selected: both tiles have the same size.
template <class T, int Width>
__device__ Tile<T, Width> of_half(bool first_half, const Tile<T, Width>& first, const Tile<T, Width>& second) {
  return {first_half ? first.elements.data : second.elements.data, first.elements.rows};
}

// P^T goes from half 0 to half 1 in lane order, in the memory of the warp's rows of a tile: a lane stores its four registers of
// each 16 x 16 block, and the same lane of half 1 reads them back, as one 16-byte access without bank conflicts. Row order,
// with 4-byte accesses, costs 2 % at d = 64.
template <class T, int Width, int RowFragments, int Depth>
__device__ void store_in_lane_order(const Tile<T, Width>& rows, const InRegisters<T, RowFragments, Depth>& Pt) {
  constexpr int count = RowFragments * Depth;
  const SharedMatrix<T> blocks{rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    const unsigned(&block)[4] = Pt.blocks_reg[index % Depth][index / Depth];
    blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)) = make_uint4(block[0], block[1], block[2], block[3]);
  }
}

/// (8.13)  dP^T - D becomes dS^T: multiplies it by the P^T that store_in_lane_order() has stored, rounded as for dV.
template <class T, int Width, int RowFragments, int ColFragments>
__device__ void multiply_by_Pt(Accumulators<RowFragments, ColFragments>& dPt, const Tile<T, Width>& rows) {
  constexpr int depth = ColFragments / 2, count = RowFragments * depth;
  const SharedMatrix<const T> blocks{rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    multiply_block<T>(dPt, index / depth, index % depth, blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)));
  }
}

/// (8.16)  The warp's share of dQ = dS K [Br, d], added to dQ_accum: add_to_dQ() of step 2 with col0 = 0, as a block computes
/// all columns. The order of dQ_accum: parts/sum_of_dQ.cuh.
template <class Shape, class T>
__device__ void add_to_dQ(const Matrix<float>& dQ_accum, int query0, const Tile<T, Shape::Br>& dSt_smem,
                          const Tile<T, Shape::Width>& K_smem) {
  constexpr int row_fragments = Shape::Br / 16 / Shape::DQ_WARPS.rows, col_fragments = Shape::Width / 8 / Shape::DQ_WARPS.cols;
  const int warp = threadIdx.x / WARP, warp_row = warp % Shape::DQ_WARPS.rows * 16 * row_fragments;
  const int warp_col = warp / Shape::DQ_WARPS.rows * 8 * col_fragments;
  if (warp_col >= Shape::Width) return;  // Width 96: some warps have no share
  Accumulators<row_fragments, col_fragments> dQ(0.0f);
  add_product(dQ, dSt_smem.template left_transposed<Shape::Bc>(warp_row), K_smem.right(warp_col));
  // A pointer, where step 2 has an offset: 2 % faster at d = 64.
  const auto first =
      dQ_accum.address(0, 4 * (((query0 + warp_row) / 16 * (Shape::Width / 8) + warp_col / 8) * WARP + threadIdx.x % WARP));
#pragma unroll
  for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
    for (int n = 0; n < col_fragments; ++n) {
      const float(&dq)[4] = dQ.elements[i][n];
      atomic_add4(first + 4 * (i * Shape::Width / 8 + n) * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
}

}  // namespace
}  // namespace flash::tensor_cores
