// 08 Tensor cores, forward: what the steps leave out: biases, any scale, the options of chapter 09.
//
// New since step 8, in the order of the code:
// - The rule of the scores is a parameter of the kernel.
// - A block of a ragged batch looks up its sequence and narrows the tensors to it.
// - A window begins at first_key(), so the tiles before it are never loaded. A warp skips tiles
//   that none of its rows see.
// - OptionsRule caps scaled scores, adds the bias, and hides what is outside the window.
// - Dropout multiplies P by Z once l has its sum.
//
// Grid: as step 8, in a ragged batch one block per tile of a sequence and head.
// Block, shapes: as step 8. HBM: as step 8, but only the tiles in the window are visited.
#pragma once

#include "08_tensor_cores/forward/more/drop.cuh"
#include "08_tensor_cores/forward/shapes.hpp"
#include "08_tensor_cores/parts/addresses.cuh"
#include "08_tensor_cores/parts/epilogue.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/softmax.cuh"

namespace flash::tensor_cores::forward_more_options {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8;        // of 8 columns of S
  static constexpr int COL_FRAGMENTS = Width / 8;     // of 8 columns of O
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;  // per SM (occupancy); they share its registers
  // Registers per lane: more would spill, next to S and O.
  static constexpr bool Q_STAYS = Width / 16 * ROW_FRAGMENTS * 4 <= 32;
  // Q, and two tiles each of K and V.
  static constexpr int SHARED_ELEMENTS = Width * (Br + 4 * Bc);
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2 && Width >= 64);

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 32 == 0,
                "whole fragments");
};

/// The warp's rows of Q as left operand, in registers or in shared memory.
template <class Shape, class T>
__device__ auto operand_of_Q(const Tile<T, Shape::Width>& Q_rows) {
  if constexpr (Shape::Q_STAYS) {
    return InRegisters<T, Shape::ROW_FRAGMENTS, Shape::Width / 16>(Q_rows.left());
  } else {
    return Q_rows.left();
  }
}

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(Rule rule, Tensor<const T> Q_all, Tensor<const T> K_all, Tensor<const T> V_all,
                   Tensor<T> O_all, Tensor<float> L_all, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  const auto& problem = rule.problem;
  const int heads = problem.B * problem.H;
  const BlockOrder order(gridDim.x / heads, heads, heads_at_once);
  int query0 = (order.tiles_of_head - 1 - order.tile) * Shape::Br;  // the last tile starts first
  const int b = order.head / problem.H, h = order.head % problem.H;
  if constexpr (Rule::RAGGED) {
    // From here on problem is the sequence's own, and the tensors have its rows.
    query0 = rule.enter(order.tile);
    Q_all = queries_of(rule, Q_all), O_all = queries_of(rule, O_all);
    K_all = keys_of(rule, K_all), V_all = keys_of(rule, V_all);
  }
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h)),
                        V = V_all.head(b, problem.kv_head(h));

  const Tile<T, Shape::Width> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Br);
  const auto K_smem = [&](int stage) {  // two tiles of K after Q, then two of V
    return Tile<T, Shape::Width>(Q_smem.end() + stage * Shape::Bc * Shape::Width, Shape::Bc);
  };
  const auto V_smem = [&](int stage) { return K_smem(2 + stage); };
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row
  const auto Q_rows = Q_smem.below(warp_row);
  const float scale_log2 = rule.late_scale * LOG2_E;  // c

  using Output = Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS>;
  Output O(0.0f);                            // [16 ROW_FRAGMENTS, Width], not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  // From the first key of the first row, rounded down to a tile, to the last key of the last row.
  const int first_key = problem.first_key(query0, Shape::Bc);
  const int key_end = problem.end_key(min(query0 + Shape::Br, problem.Nq) - 1);
  const int visible_tiles = max(0, key_end - first_key + Shape::Bc - 1) / Shape::Bc;
  if (visible_tiles == 0) {
    const Vector<float> L = queries_of(rule, L_all).head_vector(b, h);
    return write_empty<Shape>(O_all.head(b, h), L, query0);
  }

  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS> copy_K(K, first_key), copy_V(V, first_key);
  const auto load_tile = [&](int j) {
    copy_K.load_async(K_smem(j % 2), Shape::Bc);
    copy_V.load_async(V_smem(j % 2), Shape::Bc);
  };

  // 1. Q and the first tiles of K and V.
  using CopyQ = Copier<T, Shape::Width, Shape::Br, Shape::THREADS>;
  CopyQ(Q_all.head(b, h), query0).load_async(Q_smem);
  load_tile(0);
  if constexpr (Shape::Q_STAYS) {
    cp_async_wait_all();
    // Read after write: Q of all threads has landed.
    __syncthreads();
  }
  const auto Q = operand_of_Q<Shape>(Q_rows);

  for (int j = 0; j < visible_tiles; ++j) {
    // 2. K and V have landed; the prefetch of the next tiles starts.
    cp_async_wait_all();
    // Read after write: Q, K_j, V_j of all threads have landed.
    // Write after read: no warp still reads K_(j-1), V_(j-1).
    __syncthreads();
    if (j + 1 < visible_tiles) load_tile(j + 1);
    const int key0 = first_key + j * Shape::Bc;
    // Other warps may see the tile.
    if (rule.hides(query0 + warp_row, Output::HEIGHT, key0, Shape::Bc)) continue;

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S(0.0f);  // [16 ROW_FRAGMENTS, Bc]
    add_product(S, Q, K_smem(j % 2).transposed());                     // (8.1)
    rule.apply(S, order.head, query0 + warp_row, key0);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2);                            // (8.2)
    auto& P = S;                                               // in the same registers
    l = alpha * l + lane_sum(P);
    drop(rule, P, order.head, query0 + warp_row, key0);  // (9.12)
    O.scale_rows(alpha);

    // 4. O += P V.
    add_product(O, rounded<T>(P), V_smem(j % 2).right());  // (6.4)
  }
  // Here, since no register keeps it through the loop.
  const Vector<float> L = queries_of(rule, L_all).head_vector(b, h);
  write_output(O, m, l, rule.late_scale, O_all.head(b, h), L, query0 + warp_row, Q_rows);  // (8.5)
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const int heads = p.B * p.H;
    const std::int64_t bytes_of_head = 2 * 2 * std::int64_t{p.Nk} * p.d;  // of K and V
    with_rule_of(a, blocks_for(p.Nq, Shape::Br), [&]<class Rule>(Rule rule, unsigned tiles) {
      const unsigned blocks = tiles * static_cast<unsigned>(heads);
      launch("tensor_options",
             {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
             forward_kernel<T, Shape, Rule>, rule, view<const T>(a.Q), view<const T>(a.K),
             view<const T>(a.V), view<T>(a.O), view<float>(a.L),
             heads_in_L2(heads, bytes_of_head / p.group_size()));
    });
  });
}

const Variant variant = [] {
  Variant step = plain_step<options_shapes<ForwardShape>>(
      "options", "biases, any scale, a window, a softcap, dropout of P; ragged batches");
  step.takes = general_problem | usual_options;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::forward_more_options
