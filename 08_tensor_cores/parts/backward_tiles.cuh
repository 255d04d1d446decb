// 08 Tensor cores, backward: the words in which the steps are written. To be read first.
//
//   Accumulators       a warp's rows of a matrix, in registers; add_product()      accumulators.cuh
//   Tile               a matrix in shared memory, and its operands: left(row),     tile.cuh
//                      right(col), transposed(), left_transposed(col)
//   BackwardTensors    what the host passes, with L and D of all queries           prepare.cuh
//   SharedTiles        K, V, and what comes and goes with each tile of queries     below
//   exponentiate()     scores become P, (8.11)                                     weights.cuh
//   softmax_backward() dP becomes dS, (8.13)                                       query_stats.cuh
//   add_to_dQ()        from step 2 on: (8.16), in the order of dQ_accum            below
//   of_half()          from step 3 on: the tile of this thread's half              below
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
// From step 3 on two halves of the warps have the same rows. Half 0 owns S^T, P^T and dV, half 1
// dP^T, dS^T and dK; P^T goes from one to the other as below.
#pragma once

#include "08_tensor_cores/parts/addresses.cuh"
#include "08_tensor_cores/parts/sum_of_dQ.cuh"
#include "08_tensor_cores/parts/weights.cuh"

namespace flash::tensor_cores {
namespace {

/// Shared memory of a block: K and V; Shape::STAGES tiles each of Q and dO; Shape::PAIR_TILES tiles
/// of P^T or dS^T, whose rows are keys; L and D of each stage.
template <class T, class Shape>
struct SharedTiles {
  Tile<T, Shape::Width> K, V;  // [Bc, Width]

  __device__ SharedTiles()
      : K(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Bc), V(K.end(), Shape::Bc) {}
  __device__ Tile<T, Shape::Width> Q(int stage) const {  // [Br, Width]
    return {V.end() + stage * Shape::Br * Shape::Width, Shape::Br};
  }
  __device__ Tile<T, Shape::Width> dO(int stage) const { return Q(Shape::STAGES + stage); }
  __device__ Tile<T, Shape::Br> Pt_or_dSt(int index = 0) const {  // [Bc, Br]
    return {dO(Shape::STAGES - 1).end() + index * Shape::Bc * Shape::Br, Shape::Bc};
  }
  __device__ QueryStats stats(int stage) const {
    const auto first = reinterpret_cast<float*>(Pt_or_dSt(Shape::PAIR_TILES).elements.data);
    return {{first + stage * 2 * Shape::Br, 2, Shape::Br, Shape::Br}};
  }
};

/// Its size in elements of 16 bits.
constexpr int shared_elements(int width, int Br, int Bc, int stages, int pair_tiles) {
  return 2 * width * (Bc + stages * Br) + pair_tiles * Bc * Br + stages * 2 * 2 * Br;
}

/// Starts copying rows row0, row0 + 1, ... of M to a tile of `Height` rows.
template <int Threads, int Height, class T, int Width>
__device__ void load_async(const Tile<T, Width>& tile, const Matrix<const T>& M, int row0) {
  Copier<T, Width, Height, Threads>(M, row0).load_async(tile);
}

/// Starts copying L and D of Br queries from query0 on. Br / 2 threads copy four elements each.
template <int Br>
__device__ void load_async(const QueryStats& stats, const Matrix<const float>& L_and_D,
                           int query0) {
  const int row = threadIdx.x / (Br / 4), col = threadIdx.x % (Br / 4) * 4;
  if (row < 2) cp_async<16>(stats.rows.address(row, col), L_and_D.address(row, query0 + col));
}

/// Starts copying the tiles of Q, dO, L and D that begin at query0 of head h.
template <class Shape, class T>
__device__ void load_queries(const SharedTiles<T, Shape>& smem, int stage,
                             const BackwardTensors<T>& all, int b, int h, int query0) {
  load_async<Shape::THREADS, Shape::Br>(smem.Q(stage), all.Q.head(b, h), query0);
  load_async<Shape::THREADS, Shape::Br>(smem.dO(stage), all.dO.head(b, h), query0);
  load_async<Shape::Br>(smem.stats(stage), all.L_and_D.head(b, h), query0);
}

// ---- Step 2: dQ --------------------------------------------------------------------------------

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
/// whose order is in sum_of_dQ.cuh. row0: the first query of the tile there.
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

// ---- Step 3: two halves ------------------------------------------------------------------------

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
template <class T, int Width, class Left>
__device__ void store_in_lane_order(const Tile<T, Width>& rows, const Left& Pt) {
  constexpr int count = Left::ROW_FRAGMENTS * Left::DEPTH;
  const SharedMatrix<T> blocks{rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    unsigned block[4];
    Pt.load(block, index / Left::DEPTH, index % Left::DEPTH);
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

}  // namespace
}  // namespace flash::tensor_cores
