// 07 FlashAttention-2, backward: the options of chapter 09: a window, a softcap, ragged batches,
// dropout.
//
//   S = scale Q_i K_j^T, capped, + bias, masked;   P = e^(S - L_i)                      (7.1)
//   dP = Z o (dO_i V_j^T)                                                        (7.2), (9.13)
//   dS = slope o P o (dP - D_i)                                                  (7.3), (9.2)
//   dV_j += (P o Z)^T dO_i                                                       (7.4), (9.12)
//
// New since one_kernel, in the order of the code, for biases, any scale and the options:
// - The rule of the scores is a parameter of the kernel. OptionsRule caps the scores, adds the
//   bias, and hides what is outside the window.
// - A block of a ragged batch looks up its sequence and narrows all tensors to it. Each sequence
//   has a last tile, so the last rows, too, are copied 16 bytes at a time.
// - For a deterministic pass the kernel is launched `launches` times, each time for every
//   launches-th tile of keys, so that in one launch a row of dQ gets one addition.
// - With a window, a tile of keys has a last query as well as a first one, and keys that no query
//   sees get dK = dV = 0.
// - A softcap multiplies dS by its slope. The slope, and then slope o P, wait in shared memory
//   where dS will be.
// - Dropout multiplies the P of dV, and dP, by Z. P as it was then waits where dS will be.
//
// Grid: as one_kernel, in a ragged batch one block per tile of a sequence and key/value head.
// Block, HBM, workspace, shapes: as one_kernel.
#pragma once

#include "06_fa2_forward/more/drop.cuh"
#include "07_fa2_backward/halves.cuh"
#include "07_fa2_backward/shapes.hpp"

namespace flash::fa2_backward::more_options {
namespace {

/// Starts copying the tiles of Q, dO, L and D that begin at query0, a row of the sequence. Tensors
/// are narrowed to the sequence wherever they are used: a kernel that writes to its parameter `all`
/// has it in local memory (432 bytes).
template <class Shape, class Rule>
__device__ void load_queries(const SharedTiles& smem, const Tensors& hbm, int b, int h, int query0,
                             const Rule& rule) {
  load_async<Shape, Shape::Br>(smem.Q, queries_of(rule, hbm.Q).head(b, h), query0);
  load_async<Shape, Shape::Br>(smem.dO, queries_of(rule, hbm.dO).head(b, h), query0);
  static_assert(Shape::Br <= Shape::THREADS, "a thread copies a row's L and D");
  const int row = threadIdx.x;
  if (row >= Shape::Br) return;
  const Vector<const float> L = queries_of(rule, hbm.L).head_vector(b, h),
                            D = queries_of(rule, hbm.D).head_vector(b, h);
  if (query0 + row < L.size) {
    cp_async<4>(&smem.L[row], L.address(query0 + row));
    cp_async<4>(&smem.D[row], D.address(query0 + row));
  } else {  // beyond the last query P = 0: an infinite one would turn dO = 0 into NaN
    smem.L[row] = INFINITY;
    smem.D[row] = 0.0f;
  }
}

/// Phase 2 of half 0: S becomes P. In phase 3 half 1 multiplies dP - D by weights from here. With
/// options they wait in smem.dS, and dS replaces them:
///   softcap   dropout   smem.dS holds in turn     smem.P, for dV
///   no        no        dS                        P, which is also the weights
///   yes       no        slope, slope o P, dS      P
///   no        yes       P, dS                     P, then P o Z
///   yes       yes       slope, slope o P, dS      P, then P o Z
template <class Rule, class Tile>
__device__ void store_P_and_weights(const SharedTiles& smem, const Rule& rule, Tile& S, int head,
                                    int query0, int key0) {
  const bool has_slope = rule.problem.softcap != 0.0f;
  rule.apply(S, head, query0, key0, /*slope=*/smem.dS);
  store_P(smem, S, rule.late_scale);
  if (has_slope) S.each_at([&](float p, int row, int col) { smem.dS(row, col) *= p; });
  if constexpr (Drops<Rule>) {
    if (!has_slope) S.each_at([&](float p, int row, int col) { smem.dS(row, col) = p; });
    drop(rule, S, head, query0, key0);  // (9.12)
    S.each_at([&](float p, int row, int col) { smem.P(row, col) = p; });
  }
}

/// (9.2)  dS = slope o P o (dP - D), to shared memory. weights_data: of smem.P or smem.dS, where
/// the weights are.
template <class Tile>
__device__ void store_dS(const SharedTiles& smem, Tile& dP, float* weights_data) {
  const SharedMatrix<float> weights{weights_data, smem.P.rows, smem.P.cols, smem.P.stride};
  const Rows<Tile::ROWS> D = of_rows<Tile>(smem.D);
  dP.each([&](float& dp, int r) { dp -= D[r]; });
  dP.each_at([&](float difference, int row, int col) {
    smem.dS(row, col) = weights(row, col) * difference;
  });
}

template <class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Rule rule, Tensors hbm, int launch_index, int launches) {
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const auto& problem = rule.problem;
  const int heads = problem.B * problem.Hkv;
  const int b = blockIdx.x % heads / problem.Hkv, kv_head = blockIdx.x % heads % problem.Hkv;
  int key0 = blockIdx.x / heads * Shape::Bc;
  // From here on problem is the sequence's own.
  if constexpr (Rule::RAGGED) key0 = rule.enter(blockIdx.x / heads);
  if (key0 / Shape::Bc % launches != launch_index) return;  // another launch's
  const SharedTiles smem = shared_tiles<Shape>();
  const bool first_half = threadIdx.x < Shape::HALF_THREADS;
  const int dQ_col0 = first_half ? 0 : Shape::Width / 2;  // this half's first column of dQ
  const SharedMatrix<float> K_cols{smem.K.data + dQ_col0, Shape::Bc, Shape::Width / 2,
                                   Shape::STRIDE};
  // The matrices of each half. Half 0: S = Q K^T, dV += P^T dO. Half 1: dP = dO V^T, dK += dS^T Q.
  const auto Q_or_dO = of_half(first_half, smem.Q, smem.dO);
  const auto K_or_V = of_half(first_half, smem.K, smem.V);
  const auto P_or_dS = of_half(first_half, smem.P, smem.dS);
  const auto dO_or_Q = of_half(first_half, smem.dO, smem.Q);
  const bool weights_in_dS = problem.softcap != 0.0f || Drops<Rule>;

  // The tiles of Q, starting at the first query that sees a key of this tile, for every query head
  // of the group. Without a window there is at least one: the last query sees every key.
  const int first_query = problem.first_query(key0, Shape::Br);
  const int end_query = problem.end_query(min(key0 + Shape::Bc, problem.Nk) - 1);
  const int first_head = kv_head * problem.group_size();
  const int end_head = first_head + problem.group_size();

  if (first_query >= end_query) {  // no query sees these keys: dK = dV = 0
    const typename Shape::KeyGradient zero(0.0f);
    write_tile(keys_of(rule, first_half ? hbm.dV : hbm.dK).head(b, kv_head), key0, 0, zero);
    return;
  }

  // 1. K, V, and the first tile of Q, dO, L, D.
  load_async<Shape, Shape::Bc>(smem.K, keys_of(rule, hbm.K).head(b, kv_head), key0);
  load_async<Shape, Shape::Bc>(smem.V, keys_of(rule, hbm.V).head(b, kv_head), key0);
  load_queries<Shape>(smem, hbm, b, first_head, first_query, rule);
  cp_async_commit();

  for (int h = first_head; h < end_head; ++h) {
    // Half 0: dV. Half 1: dK, not scaled. Of this query head only.
    typename Shape::KeyGradient gradient(0.0f);
    for (int query0 = first_query; query0 < end_query; query0 += Shape::Br) {
      cp_async_wait<0>();
      // Read after write: all tiles have landed.
      // Write after read: no thread still reads the previous dS, where half 0 stores its weights.
      __syncthreads();

      // 2. Half 0: S = Q K^T, then P. Half 1: dP = dO V^T.
      typename Shape::Scores S_or_dP(0.0f);
      add_product(S_or_dP, KMajor{Q_or_dO}, KMajor{K_or_V});
      if (first_half) {
        store_P_and_weights(smem, rule, S_or_dP, b * problem.H + h, query0, key0);
      } else {
        drop(rule, S_or_dP, b * problem.H + h, query0, key0);  // (9.13)
      }
      // Read after write: half 1 reads its weights, in smem.P or smem.dS, and all warps of half 0
      // read smem.P for dV.
      __syncthreads();

      // 3. Half 1: dS = slope o P o (dP - D).
      if (!first_half) store_dS(smem, S_or_dP, weights_in_dS ? smem.dS.data : smem.P.data);
      // Read after write: all threads read dS.
      __syncthreads();

      // 4. Half 0: dV += (P o Z)^T dO. Half 1: dK += dS^T Q.
      add_product(gradient, MnMajor{P_or_dS}, MnMajor{dO_or_Q});
      // Write after read: the next tile overwrites Q, dO, L, D.
      __syncthreads();
      const bool last_tile = query0 + Shape::Br >= end_query;
      if (!last_tile || h + 1 < end_head)
        load_queries<Shape>(smem, hbm, b, last_tile ? h + 1 : h,
                            last_tile ? first_query : query0 + Shape::Br, rule);
      cp_async_commit();

      // 5. dQ += scale dS K, while the next tile is in flight.
      typename Shape::QueryGradient dQ(0.0f);
      add_product(dQ, KMajor{smem.dS}, MnMajor{K_cols});
      dQ.each([&](float& x, int) { x *= problem.scale; });
      add_atomically(queries_of(rule, hbm.dQ).head(b, h), query0, dQ_col0, dQ);
    }

    // 6. Sum each head separately, then add up the heads: a single chain of additions over all
    // queries of a group would be less precise (chapter 05, section 5).
    const float factor = first_half ? 1.0f : problem.scale;
    gradient.each([&](float& x, int) { x *= factor; });
    write_tile(keys_of(rule, first_half ? hbm.dV : hbm.dK).head(b, kv_head), key0, 0, gradient,
               h > first_head);
  }
}

/// BackwardShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct OwnShape : BackwardShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  const FullProblem& p = a.problem;
  launch_prepare(a, /*clear_dQ=*/true);  // row by row, whatever sequence a row belongs to
  with_rule_of(a, blocks_for(p.Nk, Shape::Bc), [&]<class Rule>(Rule rule, unsigned tiles) {
    const unsigned blocks = tiles * static_cast<unsigned>(p.B * p.Hkv);
    for (int index = 0; index < a.launches; ++index) {
      launch("fa2_options",
             {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
             backward_kernel<Shape, Rule>, rule, tensors_of(a), index, a.launches);
    }
  });
}

const Variant variant{.name = "options",
                      .idea =
                          "a window, a softcap and its slope in dS, dropout of P and dP; blocks "
                          "that enter a sequence of a ragged batch",
                      .backward = start_one_of<options_shapes<OwnShape>>,
                      .workspace = workspace,
                      .refuse = refuse,
                      .tiles = choices_of<options_shapes<OwnShape>>,
                      .atomic_dQ = true,
                      .by_launches = true,
                      .row_multiple = 4,
                      .takes = general_problem | usual_options};

}  // namespace
}  // namespace flash::fa2_backward::more_options
