// 08 Tensor cores, backward: the words in which steps 1 to 3 are written. To be read first.
//
//   Accumulators       a warp's rows of a matrix, in registers; add_product()      accumulators.cuh
//   Tile               a matrix in shared memory, and its operands: left(row),     tile.cuh
//                      right(col), transposed(), left_transposed(col)
//   BackwardTensors    what the host passes, with L and D of all queries           prepare.cuh
//   QueryTiles         which tiles of queries a block loops over                   prepare.cuh
//   QueryStats         L and D of such a tile, in shared memory                    prepare.cuh
//   exponentiate()     scores become P, (8.11); softmax_backward(): dS, (8.13)     weights.cuh
//   dQ_accum, WarpGrid the sum of dQ over blocks, in the order of fragments        sum_of_dQ.cuh
//
// Who owns what. A block has a tile of keys, whose rows it divides among its warps, and loops over
// tiles of queries, whose rows are columns here:
//
//                                      all warps read Q, dO  [Br, Width]
//                                     +--------------------------------+
//   warp 0   its rows of K and V      | its rows of S^T, P^T, dP^T,    |    its rows of dK and dV
//   warp 1   its rows of K and V      | dS^T  [Bc, Br], in registers   |    its rows of dK and dV
//   ...      [Bc, Width], shared      |                                |    [Bc, Width], registers
//                                     +--------------------------------+
//
//   (8.11), (8.12)   K and V are the left operands, Q and dO the right ones: transposed()
//   (8.14), (8.15)   accumulators, P^T and dS^T, are the left operands, dO and Q the right ones
//   (8.16)           sums over keys, which all warps own: dS^T goes through shared memory, to be
//                    left_transposed() in a product that WarpGrid divides anew, with K as right()
//
// Step 3: two halves of the warps have the same rows. Half 0 owns S^T, P^T and dV, half 1 dP^T,
// dS^T and dK; P^T goes from one to the other as below.
#pragma once

#include "08_tensor_cores/parts/sum_of_dQ.cuh"
#include "08_tensor_cores/parts/tile.cuh"
#include "08_tensor_cores/parts/weights.cuh"

namespace flash::tensor_cores {
namespace {

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

/// The tile that this thread's half works on. Only the pointer is selected: both tiles have the
/// same size.
template <class T, int Width>
__device__ Tile<T, Width> of_half(bool first_half, const Tile<T, Width>& first,
                                  const Tile<T, Width>& second) {
  return {first_half ? first.elements.data : second.elements.data, first.elements.rows};
}

// P^T goes from half 0 to half 1 in lane order, in the memory of the warp's rows of a tile: a lane
// stores its four registers of each 16 x 16 block, and the same lane of half 1 reads them back, as
// one 16-byte access without bank conflicts. Row order, with 4-byte accesses, costs 2 % at d = 64.
template <class T, int Width, int RowFragments, int Depth>
__device__ void store_in_lane_order(const Tile<T, Width>& rows,
                                    const InRegisters<T, RowFragments, Depth>& Pt) {
  constexpr int count = RowFragments * Depth;
  const SharedMatrix<T> blocks{rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    const unsigned(&block)[4] = Pt.blocks_reg[index % Depth][index / Depth];
    blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)) =
        make_uint4(block[0], block[1], block[2], block[3]);
  }
}

/// (8.13)  dP^T - D becomes dS^T: multiplies it by the P^T that store_in_lane_order() has stored,
/// rounded as for dV.
template <class T, int Width, int RowFragments, int ColFragments>
__device__ void multiply_by_Pt(Accumulators<RowFragments, ColFragments>& dPt,
                               const Tile<T, Width>& rows) {
  constexpr int depth = ColFragments / 2, count = RowFragments * depth;
  const SharedMatrix<const T> blocks{rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    multiply_block<T>(dPt, index / depth, index % depth,
                      blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)));
  }
}

/// (8.16)  The warp's share of dQ = dS K [Br, d], added to dQ_accum: add_to_dQ() of step 2 with
/// col0 = 0, as a block computes all columns. The order of dQ_accum: parts/sum_of_dQ.cuh.
template <class Shape, class T>
__device__ void add_to_dQ(const Matrix<float>& dQ_accum, int query0,
                          const Tile<T, Shape::Br>& dSt_smem, const Tile<T, Shape::Width>& K_smem) {
  constexpr int row_fragments = Shape::Br / 16 / Shape::DQ_WARPS.rows,
                col_fragments = Shape::Width / 8 / Shape::DQ_WARPS.cols;
  const int warp = threadIdx.x / WARP, warp_row = warp % Shape::DQ_WARPS.rows * 16 * row_fragments;
  const int warp_col = warp / Shape::DQ_WARPS.rows * 8 * col_fragments;
  if (warp_col >= Shape::Width) return;  // Width 96: some warps have no share
  Accumulators<row_fragments, col_fragments> dQ(0.0f);
  add_product(dQ, dSt_smem.template left_transposed<Shape::Bc>(warp_row), K_smem.right(warp_col));
  // A pointer, where step 2 has an offset: 2 % faster at d = 64.
  const auto first = dQ_accum.address(
      0, 4 * (((query0 + warp_row) / 16 * (Shape::Width / 8) + warp_col / 8) * WARP +
              threadIdx.x % WARP));
#pragma unroll
  for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
    for (int n = 0; n < col_fragments; ++n) {
      const float(&dq)[4] = dQ.elements[i][n];
      atomic_add4(first + 4 * (i * Shape::Width / 8 + n) * WARP,
                  make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
}

}  // namespace
}  // namespace flash::tensor_cores
