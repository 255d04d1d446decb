// 06 FlashAttention-2, forward: the options of chapter 09: a window, a softcap, ragged batches,
// dropout.
//
//   S = Q_i K_j^T, capped, masked                                                 (6.1), (9.1)
//   O = alpha O + (P o Z) V_j                                                     (6.4), (9.12)
//
// New since tuned, in the order of the code, for biases, any scale and the options:
// - The rule of the scores is a parameter of the kernel.
// - A block of a ragged batch looks up its sequence and narrows the tensors to it. Each sequence
//   has a last tile, so the last rows, too, are copied 16 bytes at a time.
// - A window begins at first_key(), so that the tiles before it are never loaded.
// - OptionsRule caps the scores, for which they are scaled first (then c = log2 e), adds the bias,
//   and hides what is outside the window.
// - Dropout multiplies P by Z once l has its sum.
//
// Grid: as step 1, in a ragged batch one block per tile of a sequence and head.
// Block, shared memory: as tuned. Shapes: as step 1.
// HBM: as step 1 (6.6), but the bias is read for every pair of a visited tile, masked or not.
#pragma once

#include "06_fa2_forward/more/drop.cuh"
#include "06_fa2_forward/operands.cuh"
#include "06_fa2_forward/shapes.hpp"

namespace flash::fa2_forward::more_options {
namespace {

constexpr int PAD = 4;  // as in tuned

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up. Lanes:
/// per row. Blocks: how many per SM the compiler leaves registers for (__launch_bounds__).
template <int Width_, int Br_, int Bc_, int ThreadRows, int Lanes, int Blocks = 1>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, LANES = Lanes, BLOCKS = Blocks;
  static constexpr int CHUNK = Bc < 64 ? Bc : 64;  // keys of P in shared memory at a time
  static constexpr int WARPS = Br / (ThreadRows * (WARP / LANES)), THREADS = WARPS * WARP;
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Br + PAD;
  static constexpr int SHARED_FLOATS = Width * Br + Bc * (STRIDE + Width) + CHUNK * P_STRIDE;
  using Scores = ThreadTile<ThreadRows, Bc / LANES, LANES, WARPS, 4>;        // S, then P: [Br, Bc]
  using Output = ThreadTile<ThreadRows, Width / LANES, LANES, WARPS, 4, 4>;  // O: [Br, Width]

  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == Bc && Output::WIDTH == Width,
                "tiles are dealt out evenly");
  static_assert(Bc % CHUNK == 0, "whole chunks of keys");
  static_assert(Br % 32 == 0 && Width % 32 == 0, "PAD assumes rows of whole 32 banks");
};

template <class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(Rule rule, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> L_all) {
  const auto& problem = rule.problem;
  // Heads vary fastest, so that all heads' longest tiles start first.
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  const int tile = problem.causal ? Tr - 1 - blockIdx.x / heads : blockIdx.x / heads;
  int query0 = tile * Shape::Br;
  const int head = blockIdx.x % heads, h = head % problem.H, b = head / problem.H;
  if constexpr (Rule::RAGGED) {
    // From here on problem is the sequence's own, and the tensors have its rows.
    query0 = rule.enter(blockIdx.x / heads);
    Q_all = queries_of(rule, Q_all), O_all = queries_of(rule, O_all),
    L_all = queries_of(rule, L_all);
    K_all = keys_of(rule, K_all), V_all = keys_of(rule, V_all);
  }
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Qt_smem{shared, Shape::Width, Shape::Br, Shape::Br};
  const SharedMatrix<float> K_smem{Qt_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.end(), Shape::Bc, Shape::Width, Shape::Width};
  const SharedMatrix<float> Pt_smem{V_smem.end(), Shape::CHUNK, Shape::Br, Shape::P_STRIDE};

  // 1. The first tile of K and the tile of Q; O = 0, l = 0, m = -inf.
  // Of the first row, rounded down to a tile; 0 without a window.
  const int first_key = problem.first_key(query0, Shape::Bc);
  const int key_end = problem.end_key(min(query0 + Shape::Br, problem.Nq) - 1);  // by the last row
  if (key_end > first_key) load_async<Shape, Shape::Bc>(K_smem, K, first_key);
  cp_async_commit();
  load_transposed<Shape>(Qt_smem, Q_all.head(b, h), query0);
  typename Shape::Output O(0.0f);      // not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  const float scale_log2 = rule.late_scale * LOG2_E;
  const auto power = [=](float x) { return exp2_approx(x * scale_log2); };

  // 2. The tiles of K and V, from the first key visible to the first row up to the last key visible
  // to the last row.
  for (int key0 = first_key; key0 < key_end; key0 += Shape::Bc) {
    cp_async_wait<0>();
    // Read after write: K_j and Q of all threads have landed.
    // Write after read: no warp still reads V_(j-1), and no lane P_(j-1).
    __syncthreads();
    load_async<Shape, Shape::Bc>(V_smem, V, key0);
    cp_async_commit();

    typename Shape::Scores S(0.0f);
    add_product(S, MnMajor{Qt_smem}, KMajor{K_smem});  // (6.1)
    // Scale and bias if they cannot wait; the mask if there is one.
    rule.apply(S, head, query0, key0);
    const Rows<O.ROWS> alpha = update_max(m, row_max(S), power);  // (6.2)
    // (6.3)  S becomes P.
    S.each([&](float& s, int r) { s = power(s - zero_if_empty(m[r])); });
    auto& P = S;
    l = alpha * l + lane_sum(P);
    drop(rule, P, head, query0, key0);  // (9.12): after the sum, before the product
    O.scale_rows(alpha);

    cp_async_wait<0>();
    // Read after write: V_j of all threads has landed.
    // Write after read: no warp still reads K_j.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(K_smem, K, key0 + Shape::Bc);
    cp_async_commit();

#pragma unroll
    for (int col0 = 0; col0 < Shape::Bc; col0 += Shape::CHUNK) {
      // Write after read: slower lanes of the warp still multiply the previous chunk of P.
      if (col0 > 0) __syncwarp();
      store_transposed(Pt_smem, P, col0);
      // Read after write: a lane reads rows of P, which the other lanes of its warp alone store.
      __syncwarp();
      const SharedMatrix<float> V_chunk{V_smem.data + col0 * Shape::Width, Shape::CHUNK,
                                        Shape::Width, Shape::Width};
      add_product(O, MnMajor{Pt_smem}, MnMajor{V_chunk});  // (6.4)
    }
  }

  // 3. (6.5)
  write_output(O_all.head(b, h), L_all.head_vector(b, h), query0, O, m, l, rule.late_scale);
}

template <class Shape>
void start(Shape, const Attention& a) {
  const Problem& p = a.problem;
  with_rule_of(a, blocks_for(p.Nq, Shape::Br), [&]<class Rule>(Rule rule, unsigned tiles) {
    const unsigned blocks = tiles * static_cast<unsigned>(p.B * p.H);
    launch("fa2_options",
           {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
           forward_kernel<Shape, Rule>, rule, view<const float>(a.Q), view<const float>(a.K),
           view<const float>(a.V), view<float>(a.O), view<float>(a.L));
  });
}

const Variant variant{.name = "options",
                      .idea =
                          "a window and a softcap in the scores, dropout of P; blocks that enter a "
                          "sequence of a ragged batch",
                      .forward = start_one_of<tuned_shapes<ForwardShape>>,
                      .refuse = refuse,
                      .tiles = choices_of<tuned_shapes<ForwardShape>>,
                      .row_multiple = 4,
                      .takes = general_problem | usual_options};

}  // namespace
}  // namespace flash::fa2_forward::more_options
