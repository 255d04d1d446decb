// 06 FlashAttention-2, forward, step 2: register tiles.
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     S = scale Q_i K_j^T, masked                           [Br, d] x [d, Bc]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                 (6.2)
//     P = e^(S - m_new),   l = alpha l + rowsum P                                       (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = m + ln l                                                           (6.5)
//
// New since step 1: a row belongs to a warp instead of a thread. A thread of step 1 reads 36 values
// from shared memory for 32 multiply-adds of q . k. Here it holds, for example, 8 x 8 elements of S
// and of O in registers: a step of a product reads 16 values and uses each 8 times, for 64
// multiply-adds. standalone.cu has the same loops over plain arrays. Replaced:
//   a thread's row of S and O   ->  ThreadTile, elements of several rows (thread_tile.cuh)
//   its m and l                 ->  Rows, a value per row of the thread (common/parts/rows.cuh)
//   dot_products()              ->  add_product(S, Q_smem, Transposed{K_smem})
//   accumulate(), maximum, sum  ->  row_max(), row_sum(): shuffles combine the lanes of a row
//   accumulate(), P V           ->  add_product(O, P_smem, V_smem): a lane needs other lanes' P
//
// Grid, HBM (6.6), shapes: as step 1.
// Block: warps; a warp owns whole rows of S and O; its lanes form a grid of 4 x 8.
// Shared memory: Q_i [Br, Width], K_j, V_j [Bc, Width], P [Br, Bc], rows padded.
#pragma once

#include "06_fa2_forward/shapes.hpp"
#include "06_fa2_forward/thread_tile.cuh"

namespace flash::fa2_forward::step_2 {
namespace {

constexpr int LANES = 8;  // per row
// A warp reads a column of 8 rows of K, or of 4 rows of Q. With 4 floats of padding, rows start 4
// banks apart: no conflicts.
constexpr int PAD = 4;

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int ThreadRows>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int WARPS = Br / (ThreadRows * (WARP / LANES)), THREADS = WARPS * WARP;
  static constexpr int STRIDE = Width + PAD;
  static constexpr int P_STRIDE = Bc + LANES;  // a warp writes 4 rows of 8 of P: 32 banks
  static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * STRIDE + Br * P_STRIDE;
  using Scores = ThreadTile<ThreadRows, Bc / LANES, LANES, WARPS>;     // S, then P: [Br, Bc]
  using Output = ThreadTile<ThreadRows, Width / LANES, LANES, WARPS>;  // O: [Br, Width]

  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == Bc && Output::WIDTH == Width,
                "tiles are dealt out evenly");
  static_assert(Bc % 32 == 0 && Width % 32 == 0, "PAD assumes rows of whole 32 banks");
};

/// The transpose of a tile, for use as the right operand of a product.
struct Transposed {
  SharedMatrix<float> tile;
  __device__ float operator()(int row, int col) const { return tile(col, row); }
};

/// C += A B: in each step a thread reads ROWS elements of A and COLS elements of B.
template <class Tile, class Left, class Right>
__device__ void add_product(Tile& C, const Left& A, const Right& B) {
#pragma unroll 4
  for (int k = 0; k < A.cols; ++k) {
    float a[Tile::ROWS], b[Tile::COLS];
#pragma unroll
    for (int r = 0; r < Tile::ROWS; ++r) a[r] = A(C.row(r), k);
#pragma unroll
    for (int c = 0; c < Tile::COLS; ++c) b[c] = B(k, C.col(c));
    C.add_outer_product(a, b);
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> L_all) {
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int h = blockIdx.x / Tr % problem.H, b = blockIdx.x / Tr / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Q_smem{shared, Shape::Br, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> K_smem{Q_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> P_smem{V_smem.end(), Shape::Br, Shape::Bc, Shape::P_STRIDE};

  // 1. Load the tile of Q, once; O = 0, l = 0, m = -inf.
  load_tile<Shape::Width>(Q_smem, Q_all.head(b, h), query0);
  typename Shape::Output O(0.0f);      // not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only

  // 2. The tiles of K and V, up to the last key visible to the last row of this tile.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    load_tile<Shape::Width>(K_smem, K, key0);
    load_tile<Shape::Width>(V_smem, V, key0);
    // Read after write: a thread reads rows of Q, K and V that other threads have loaded.
    __syncthreads();

    typename Shape::Scores S(0.0f);
    add_product(S, Q_smem, Transposed{K_smem});
    // (6.1)  Keys beyond the last are not visible either.
    S.each_at([&](float& s, int row, int col) {
      s = key0 + col < problem.visible_keys(query0 + row) ? problem.scale * s : -INFINITY;
    });
    const Rows<O.ROWS> alpha = update_max(m, row_max(S), expf);  // (6.2)
    // (6.3)  S becomes P.
    S.each([&](float& s, int r) { s = expf(s - zero_if_empty(m[r])); });
    auto& P = S;
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);
    P.each_at([&](float p, int row, int col) { P_smem(row, col) = p; });
    // Read after write: a lane reads rows of P, which the other lanes of its warp alone store.
    __syncwarp();
    add_product(O, P_smem, V_smem);  // (6.4)
    // Write after read: the next tiles overwrite K, V and P, which slower threads still read.
    __syncthreads();
  }

  // 3. (6.5)
  write_output(O_all.head(b, h), L_all.head_vector(b, h), query0, O, m, l);
}

template <class Shape>
void start(Shape, const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_register_tiles",
         {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         forward_kernel<Shape>, p, view<const float>(a.Q), view<const float>(a.K),
         view<const float>(a.V), view<float>(a.O), view<float>(a.L));
}

const Variant variant = plain_step<register_tiles_shapes<ForwardShape>>(
    "register_tiles", "a thread holds a tile of S and of O, shuffles combine the lanes of a row");

}  // namespace
}  // namespace flash::fa2_forward::step_2
