// 07 FlashAttention-2, backward: minus the distance on the hyperboloid as the score
// (06_fa2_forward/more/hyperbolic.md).
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     x = (|Q_i - K_j|^2 - (q0 - k0)^2) / 2                                             (9.19)
//     S = -2 scale asinh(sqrt(x / 2)) + bias, masked;   P = e^(S - L_i)           (7.1), (9.20)
//     dP = dO_i V_j^T                                                                   (7.2)
//     G = -P o (dP - D_i) / sqrt(x (x + 2))                                             (9.21)
//     dV_j += P^T dO_i                                                                  (7.4)
//     dK_j += scale sum_i G_ij (K_j - Q_i - (k0 - q0) K_j / k0)                         (9.22)
//     dQ_i += scale sum_j G_ij (Q_i - K_j - (q0 - k0) Q_i / q0)                         (9.22)
//
// New since one_kernel:
// - S is a sum of squared differences, and so dK and dQ are weighted sums of differences
//   (06_fa2_forward/more/distances.cuh).
// - The slope of the distance, and then its product with P, wait in shared memory where G will be.
// - dQ needs the tile of Q, so the next one is loaded after it, not meanwhile.
//
// Grid, block, shapes: as one_kernel. HBM: as one_kernel, and q0 and k0 of the forward pass with Q
//   and K.  Workspace: D, q0, k0.
#pragma once

#include "06_fa2_forward/more/distances.cuh"
#include "07_fa2_backward/halves.cuh"
#include "07_fa2_backward/shapes.hpp"
#include "common/parts/score_rule.cuh"

namespace flash::fa2_backward::more_lorentz {
namespace {

using fa2_forward::add_distance_gradient, fa2_forward::add_squares, fa2_forward::distance,
    fa2_forward::for_each_step, fa2_forward::load_times, fa2_forward::slope_of_distance,
    fa2_forward::subtract_times, fa2_forward::time_of;

/// With room for q0 [Br, 2] and k0 [Bc, 2].
template <int Width, int Br, int Bc, int ScoreLanes, int KeyLanes>
struct DistanceShape : BackwardShape<Width, Br, Bc, ScoreLanes, KeyLanes> {
  static constexpr int SHARED_FLOATS =
      BackwardShape<Width, Br, Bc, ScoreLanes, KeyLanes>::SHARED_FLOATS + 2 * (Br + Bc);
};

/// Half of a tile's columns, from col0 on.
__device__ inline SharedMatrix<float> half_of_columns(const SharedMatrix<float>& tile, int col0) {
  return {tile.data + col0, tile.rows, tile.cols / 2, tile.stride};
}

/// Phase 2 of half 0: S becomes x, then P. smem.dS has the slope of x, then slope o P.
template <class Tile>
__device__ void store_P_and_slope(const SharedTiles& smem, const ScoreRule& rule, Tile& S, int head,
                                  int query0, int key0, const SharedMatrix<float>& q0,
                                  const SharedMatrix<float>& k0) {
  add_squares(S, KMajor{smem.Q}, KMajor{smem.K});
  subtract_times(S, q0, k0);
  S.each_at([&](float x, int row, int col) { smem.dS(row, col) = -slope_of_distance(x); });
  S.each([](float& s, int) { s = -distance(s); });
  rule.apply(S, head, query0, key0);
  store_P(smem, S, rule.late_scale);
  S.each_at([&](float p, int row, int col) { smem.dS(row, col) *= p; });
}

// ---- Where values are points, too (centroid.cuh): smem.dO has d_sum, smem.D d_time ------------

/// dP += d_time v0, of which the first float is enough.
template <class Tile>
__device__ void add_time_products(Tile& dP, const SharedTiles& smem,
                                  const SharedMatrix<float>& v0) {
  const Rows<Tile::ROWS> d_time = of_rows<Tile>(smem.D);
#pragma unroll
  for (int c = 0; c < Tile::COLS; ++c) {
    const float time = time_of(v0, Tile::col(c)).x;
#pragma unroll
    for (int r = 0; r < Tile::ROWS; ++r) dP.elements[r][c] += d_time[r] * time;
  }
}

/// (9.29)  dV += P^T d_sum, for this thread's rows of V. d_time, in smem.D, acts along V / v0.
template <class Tile>
__device__ void add_value_gradient(Tile& dV, const SharedTiles& smem,
                                   const SharedMatrix<float>& v0) {
  Rows<Tile::ROWS> in_time(0.0f);
  const MnMajor P{smem.P}, d_sum{smem.dO};
  for_each_step<Tile>(P, d_sum,
                      [&](const float(&p)[Tile::ROWS], const float(&row)[Tile::COLS], int k) {
                        dV.add_outer_product(p, row);
#pragma unroll
                        for (int r = 0; r < Tile::ROWS; ++r) in_time[r] += p[r] * smem.D[k];
                      });
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) {
    float mine[1][Tile::COLS];
    MnMajor{smem.V}.load(mine, Tile::row(r), Tile::col);
    const float factor = in_time[r] / time_of(v0, Tile::row(r)).x;
#pragma unroll
    for (int c = 0; c < Tile::COLS; ++c) dV.elements[r][c] += factor * mine[0][c];
  }
}

// ---- The kernel --------------------------------------------------------------------------------

/// v0_all: the time components of V where values are points; else no argument, and (f(v0_all), ...)
/// calls nothing.
template <class Shape, class... ValueTimes>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, Tensors hbm, Tensor<const float> q0_all,
                    Tensor<const float> k0_all, ValueTimes... v0_all) {
  constexpr bool VALUES_ARE_POINTS = sizeof...(ValueTimes) > 0;
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const Problem& problem = rule.problem;
  const int heads = problem.B * problem.Hkv;
  const int b = blockIdx.x % heads / problem.Hkv, kv_head = blockIdx.x % heads % problem.Hkv;
  const int key0 = blockIdx.x / heads * Shape::Bc;
  const SharedTiles smem = shared_tiles<Shape>();
  const bool first_half = threadIdx.x < Shape::HALF_THREADS;
  const int dQ_col0 = first_half ? 0 : Shape::Width / 2;  // this half's first column of dQ
  const SharedMatrix<float> K_cols = half_of_columns(smem.K, dQ_col0);
  const SharedMatrix<float> Q_cols = half_of_columns(smem.Q, dQ_col0);
  // Time components in two floats each: [Br, 2] and [Bc, 2].
  const SharedMatrix<float> q0{smem.D + Shape::Br, Shape::Br, 2, 2}, k0{q0.end(), Shape::Bc, 2, 2};
  const SharedMatrix<float> v0{k0.end(), Shape::Bc, 2, 2};  // if values are points
  const auto load_tile_of_queries = [&](int h, int query0) {
    load_queries<Shape>(smem, hbm, b, h, query0);
    load_times<Shape, Shape::Br>(q0, q0_all.head(b, h), query0);
  };

  // The tiles of Q, starting at the first query that sees a key of this tile, for every query head
  // of the group. There is at least one: the last query sees every key.
  const int first_query = problem.first_query(key0, Shape::Br);
  const int first_head = kv_head * problem.group_size();
  const int end_head = first_head + problem.group_size();

  // 1. K, V, and the first tile of Q, dO, L, D.
  load_async<Shape, Shape::Bc>(smem.K, hbm.K.head(b, kv_head), key0);
  load_async<Shape, Shape::Bc>(smem.V, hbm.V.head(b, kv_head), key0);
  load_times<Shape, Shape::Bc>(k0, k0_all.head(b, kv_head), key0);
  (load_times<Shape, Shape::Bc>(v0, v0_all.head(b, kv_head), key0), ...);
  load_tile_of_queries(first_head, first_query);
  cp_async_commit();

  for (int h = first_head; h < end_head; ++h) {
    // Half 0: dV. Half 1: dK, not scaled. Of this query head only.
    typename Shape::KeyGradient gradient(0.0f);
    for (int query0 = first_query; query0 < problem.Nq; query0 += Shape::Br) {
      cp_async_wait<0>();
      // Read after write: all tiles have landed. (Write after read of dS: the barrier after dQ.)
      __syncthreads();

      // 2. Half 0: x, its slope, then P and slope o P. Half 1: dP = dO V^T.
      typename Shape::Scores S_or_dP(0.0f);
      if (first_half) {
        store_P_and_slope(smem, rule, S_or_dP, b * problem.H + h, query0, key0, q0, k0);
      } else {
        add_product(S_or_dP, KMajor{smem.dO}, KMajor{smem.V});
      }
      // Read after write: half 1 reads slope o P of half 0, and all warps of half 0 read P for dV.
      __syncthreads();

      // 3. Half 1: G = slope o P o (dP - D), where values are points with dP + d_time v0.
      if (!first_half) {
        if constexpr (VALUES_ARE_POINTS) {
          add_time_products(S_or_dP, smem, v0);
        } else {
          const auto D = of_rows<typename Shape::Scores>(smem.D);
          S_or_dP.each([&](float& dp, int r) { dp -= D[r]; });
        }
        S_or_dP.each_at([&](float dp, int row, int col) { smem.dS(row, col) *= dp; });
      }
      // Read after write: all threads read G.
      __syncthreads();

      // 4. Half 0: dV += P^T dO. Half 1: dK.
      if (first_half) {
        if constexpr (VALUES_ARE_POINTS) {
          add_value_gradient(gradient, smem, v0);
        } else {
          add_product(gradient, MnMajor{smem.P}, MnMajor{smem.dO});
        }
      } else {
        add_distance_gradient(gradient, MnMajor{smem.dS}, MnMajor{smem.Q}, q0, smem.K, k0);
      }

      // 5. dQ.
      typename Shape::QueryGradient dQ(0.0f);
      add_distance_gradient(dQ, KMajor{smem.dS}, MnMajor{K_cols}, k0, Q_cols, q0);
      // Write after read: the next tile overwrites Q, dO, L, D, q0.
      __syncthreads();
      const bool last_tile = query0 + Shape::Br >= problem.Nq;
      if (!last_tile || h + 1 < end_head)
        load_tile_of_queries(last_tile ? h + 1 : h, last_tile ? first_query : query0 + Shape::Br);
      cp_async_commit();
      dQ.each([&](float& x, int) { x *= problem.scale; });
      add_atomically(hbm.dQ.head(b, h), query0, dQ_col0, dQ);
    }

    // 6. Sum each head separately, then add up the heads: a single chain of additions over all
    // queries of a group would be less precise (chapter 05, section 5).
    const float factor = first_half ? 1.0f : problem.scale;
    gradient.each([&](float& x, int) { x *= factor; });
    write_tile((first_half ? hbm.dV : hbm.dK).head(b, kv_head), key0, 0, gradient, h > first_head);
  }
}

/// Launches the kernel; hbm, v0: as it takes them.
template <class Shape, class... ValueTimes>
void launch_backward(const char* name, const Attention& a, const Tensors& hbm, ValueTimes... v0) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nk, Shape::Bc) * static_cast<unsigned>(p.B * p.Hkv);
  launch(name, {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         backward_kernel<Shape, ValueTimes...>, score_rule(a), hbm,
         view<const float>(a.workspace("q0")), view<const float>(a.workspace("k0")), v0...);
}

template <class Shape>
void start(Shape, const Attention& a) {
  launch_prepare(a, /*clear_dQ=*/true);
  launch_backward<Shape>("fa2_lorentz", a, tensors_of(a));
}

const Variant variant{
    .name = "lorentz",
    .idea = "distances on the hyperboloid as scores: dQ and dK are weighted sums of differences",
    .backward = start_one_of<distance_shapes<DistanceShape>>,
    .workspace = workspace,
    .refuse = refuse,
    .tiles = choices_of<distance_shapes<DistanceShape>>,
    .atomic_dQ = true,
    .row_multiple = 4,
    .takes = general_problem | Features::lorentz,
    .needs = Features::lorentz};

}  // namespace
}  // namespace flash::fa2_backward::more_lorentz
