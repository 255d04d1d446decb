// 06 FlashAttention-2, forward, step 7: the longest blocks first.
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     S = Q_i K_j^T, masked                                 [Br, d] x [d, Bc]           (6.1)
//     m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))   with c = scale log2 e     (6.2)
//     P = 2^(c (S - m_new)),   l = alpha l + rowsum P                                   (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = scale m + ln l                                                     (6.5)
//
// New since step 6: under a causal mask the last tiles of Q see the most keys. Their blocks start
// first, so that no long block starts when the others have finished.
//
// Grid, HBM (6.6), shapes: as step 1. Block: as step 2. Shared memory: as step 6.
#pragma once

#include "06_fa2_forward/operands.cuh"
#include "06_fa2_forward/shapes.hpp"

namespace flash::fa2_forward::step_7 {
namespace {

constexpr int LANES = 8;  // per row
// Eight lanes read 16 bytes each from 8 rows of K, or write them to 8 rows of P^T. With 4 floats of
// padding, rows start 4 banks apart: the eight accesses hit all 32 banks once.
constexpr int PAD = 4;

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int ThreadRows>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int WARPS = Br / (ThreadRows * (WARP / LANES)), THREADS = WARPS * WARP;
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Br + PAD;
  static constexpr int SHARED_FLOATS = Width * Br + Bc * (STRIDE + Width) + Bc * P_STRIDE;
  using Scores = ThreadTile<ThreadRows, Bc / LANES, LANES, WARPS, 4>;        // S, then P: [Br, Bc]
  using Output = ThreadTile<ThreadRows, Width / LANES, LANES, WARPS, 4, 4>;  // O: [Br, Width]

  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == Bc && Output::WIDTH == Width,
                "tiles are dealt out evenly");
  static_assert(Br % 32 == 0 && Width % 32 == 0, "PAD assumes rows of whole 32 banks");
};

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> L_all) {
  // Heads vary fastest, so that all heads' longest tiles start first.
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  const int tile = problem.causal ? Tr - 1 - blockIdx.x / heads : blockIdx.x / heads;
  const int query0 = tile * Shape::Br;
  const int h = blockIdx.x % heads % problem.H, b = blockIdx.x % heads / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Qt_smem{shared, Shape::Width, Shape::Br, Shape::Br};
  const SharedMatrix<float> K_smem{Qt_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.end(), Shape::Bc, Shape::Width, Shape::Width};
  const SharedMatrix<float> Pt_smem{V_smem.end(), Shape::Bc, Shape::Br, Shape::P_STRIDE};

  // 1. The first tile of K and the tile of Q; O = 0, l = 0, m = -inf.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  if (key_end > 0) load_async<Shape, Shape::Bc>(K_smem, K, 0);
  cp_async_commit();
  load_transposed<Shape>(Qt_smem, Q_all.head(b, h), query0);
  typename Shape::Output O(0.0f);      // not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  const float scale_log2 = problem.scale * LOG2_E;
  const auto power = [=](float x) { return exp2_approx(x * scale_log2); };

  // 2. The tiles of K and V, up to the last key visible to the last row of this tile.
  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    cp_async_wait<0>();
    // Read after write: K_j and Q of all threads have landed.
    // Write after read: no warp still reads V_(j-1), and no lane P_(j-1).
    __syncthreads();
    load_async<Shape, Shape::Bc>(V_smem, V, key0);
    cp_async_commit();

    typename Shape::Scores S(0.0f);
    add_product(S, MnMajor{Qt_smem}, KMajor{K_smem});
    mask(S, problem, query0, key0);                               // (6.1)
    const Rows<O.ROWS> alpha = update_max(m, row_max(S), power);  // (6.2)
    // (6.3)  S becomes P.
    S.each([&](float& s, int r) { s = power(s - zero_if_empty(m[r])); });
    auto& P = S;
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    cp_async_wait<0>();
    // Read after write: V_j of all threads has landed.
    // Write after read: no warp still reads K_j.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(K_smem, K, key0 + Shape::Bc);
    cp_async_commit();

    store_transposed(Pt_smem, P);
    // Read after write: a lane reads rows of P, which the other lanes of its warp alone store.
    __syncwarp();
    add_product(O, MnMajor{Pt_smem}, MnMajor{V_smem});  // (6.4)
  }

  // 3. (6.5)
  write_output(O_all.head(b, h), L_all.head_vector(b, h), query0, O, m, l, problem.scale);
}

template <class Shape>
void start(Shape, const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_longest_first",
         {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         forward_kernel<Shape>, p, view<const float>(a.Q), view<const float>(a.K),
         view<const float>(a.V), view<float>(a.O), view<float>(a.L));
}

const Variant variant = plain_step<register_tiles_shapes<ForwardShape>>(
    "longest_first", "under a causal mask the longest blocks start first");

}  // namespace
}  // namespace flash::fa2_forward::step_7
