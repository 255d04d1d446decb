// 07 FlashAttention-2, backward: the centroid as the output of hyperbolic attention
// (06_fa2_forward/more/hyperbolic.md).
//
//   do_sum_i = dO_i + D_i y_i, do_time_i = -D_i y0_i   with y_i = O_i, from centroid_kernel  (9.28)
//   for every tile j of K, V (one block each), for every tile i of Q, do_sum that sees any of it:
//     x = (|Q_i - K_j|^2 - (q0 - k0)^2) / 2                                             (9.19)
//     S = -2 scale asinh(sqrt(x / 2)) + bias, masked;   P = e^(S - L_i)           (7.1), (9.20)
//     dP = do_sum_i V_j^T + do_time_i v0_j                                              (9.29)
//     G = -P o dP / sqrt(x (x + 2))                                                     (9.21)
//     dV_j += P^T do_sum_i + sum_i P_ij do_time_i V_j / v0_j                            (9.29)
//     dK_j += scale sum_i G_ij (K_j - Q_i - (k0 - q0) K_j / k0)                         (9.22)
//     dQ_i += scale sum_j G_ij (Q_i - K_j - (q0 - k0) Q_i / q0)                         (9.22)
//
// New since lorentz:
// - A kernel computes do_sum and do_time, the gradient of the weighted sum of V and of its time
//   component. The next kernel reads them where lorentz reads dO and D, and their tiles are smem.dO
//   and smem.D.
// - dP and dV have a term in time. The rows of P dP sum to 0, so dP - D becomes dP.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head. Block: 8
// warps (parts.cuh).
// HBM: as lorentz, with do_sum for dO. In addition O and dO once, D once more, do_sum and do_time
//   written once, and v0 with V. Workspace: D, then do_time in its place; do_sum; q0, k0, v0.
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "07_fa2_backward/more/lorentz.cuh"
#include "07_fa2_backward/shapes.hpp"

namespace flash::fa2_backward::more_centroid {
namespace {

using fa2_forward::add_distance_gradient, fa2_forward::load_times, fa2_forward::time_of,
    fa2_forward::for_each_step;

/// The shape of lorentz, with room for v0 [Bc, 2].
template <int Width, int Br, int Bc, int ScoreLanes, int KeyLanes>
struct DistanceShape : more_lorentz::DistanceShape<Width, Br, Bc, ScoreLanes, KeyLanes> {
  static constexpr int SHARED_FLOATS =
      more_lorentz::DistanceShape<Width, Br, Bc, ScoreLanes, KeyLanes>::SHARED_FLOATS + 2 * Bc;
};

/// (9.28)  The gradient of the weighted sum whose centroid is y = O: do_sum = dO + D y, and do_time
/// = -D y0, which takes D's place. A warp per query.  Grid: as prepare_kernel.
__global__ void __launch_bounds__(PREPARE_WARPS* WARP)
    centroid_kernel(Problem problem, Tensor<const float> O_all, Tensor<const float> dO_all,
                    Tensor<float> D_all, Tensor<float> do_sum_all) {
  const int heads = problem.B * problem.H;
  const int b = blockIdx.x % heads / problem.H, h = blockIdx.x % heads % problem.H;
  const int i = blockIdx.x / heads * PREPARE_WARPS + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  if (i >= problem.Nq) return;  // the whole warp leaves
  const Matrix<const float> O = O_all.head(b, h), dO = dO_all.head(b, h);
  const Matrix<float> do_sum = do_sum_all.head(b, h);
  const float D = D_all.head_vector(b, h)(i);
  float square = 0.0f;
  for (int c = lane; c < problem.d; c += WARP) {
    const float y = O(i, c);
    square += y * y;
    do_sum(i, c) = dO(i, c) + D * y;
  }
#pragma unroll
  for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
    square += __shfl_xor_sync(ALL_LANES, square, lanes);
  // Write after read: all lanes have read D, which lane 0 overwrites.
  __syncwarp();
  if (lane == 0) D_all.head_vector(b, h)(i) = -D * sqrtf(1.0f + square);
}

/// dP += do_time v0, of which the first float is enough.
template <class Tile>
__device__ void add_time_products(Tile& dP, const SharedTiles& smem,
                                  const SharedMatrix<float>& v0) {
  const Rows<Tile::ROWS> do_time = of_rows<Tile>(smem.D);
#pragma unroll
  for (int c = 0; c < Tile::COLS; ++c) {
    const float time = time_of(v0, Tile::col(c)).x;
#pragma unroll
    for (int r = 0; r < Tile::ROWS; ++r) dP.elements[r][c] += do_time[r] * time;
  }
}

/// (9.29)  dV += P^T do_sum, for this thread's rows of V. do_time, in smem.D, acts along V / v0.
template <class Tile>
__device__ void add_value_gradient(Tile& dV, const SharedTiles& smem,
                                   const SharedMatrix<float>& v0) {
  Rows<Tile::ROWS> in_time(0.0f);
  const MnMajor P{smem.P}, do_sum{smem.dO};
  for_each_step<Tile>(P, do_sum,
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

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, Tensors hbm, Tensor<const float> q0_all,
                    Tensor<const float> k0_all, Tensor<const float> v0_all) {
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const Problem& problem = rule.problem;
  const int heads = problem.B * problem.Hkv;
  const int b = blockIdx.x % heads / problem.Hkv, kv_head = blockIdx.x % heads % problem.Hkv;
  const int key0 = blockIdx.x / heads * Shape::Bc;
  const SharedTiles smem = shared_tiles<Shape>();
  const bool first_half = threadIdx.x < Shape::HALF_THREADS;
  const int dQ_col0 = first_half ? 0 : Shape::Width / 2;  // this half's first column of dQ
  const SharedMatrix<float> K_cols = more_lorentz::half_of_columns(smem.K, dQ_col0);
  const SharedMatrix<float> Q_cols = more_lorentz::half_of_columns(smem.Q, dQ_col0);
  // Time components in two floats each: [Br, 2] and [Bc, 2].
  const SharedMatrix<float> q0{smem.D + Shape::Br, Shape::Br, 2, 2}, k0{q0.end(), Shape::Bc, 2, 2};
  const SharedMatrix<float> v0{k0.end(), Shape::Bc, 2, 2};
  const auto load_tile_of_queries = [&](int h, int query0) {
    load_queries<Shape>(smem, hbm, b, h, query0);
    load_times<Shape, Shape::Br>(q0, q0_all.head(b, h), query0);
  };

  // The tiles of Q, starting at the first query that sees a key of this tile, for every query head
  // of the group. There is at least one: the last query sees every key.
  const int first_query = problem.first_query(key0, Shape::Br);
  const int first_head = kv_head * problem.group_size();
  const int end_head = first_head + problem.group_size();

  // 1. K, V, and the first tile of Q, do_sum, L, do_time.
  load_async<Shape, Shape::Bc>(smem.K, hbm.K.head(b, kv_head), key0);
  load_async<Shape, Shape::Bc>(smem.V, hbm.V.head(b, kv_head), key0);
  load_times<Shape, Shape::Bc>(k0, k0_all.head(b, kv_head), key0);
  load_times<Shape, Shape::Bc>(v0, v0_all.head(b, kv_head), key0);
  load_tile_of_queries(first_head, first_query);
  cp_async_commit();

  for (int h = first_head; h < end_head; ++h) {
    // Half 0: dV. Half 1: dK, not scaled. Of this query head only.
    typename Shape::KeyGradient gradient(0.0f);
    for (int query0 = first_query; query0 < problem.Nq; query0 += Shape::Br) {
      cp_async_wait<0>();
      // Read after write: all tiles have landed. (Write after read of dS: the barrier after dQ.)
      __syncthreads();

      // 2. Half 0: x, its slope, then P and slope o P. Half 1: dP = do_sum V^T.
      typename Shape::Scores S_or_dP(0.0f);
      if (first_half) {
        more_lorentz::store_P_and_slope(smem, rule, S_or_dP, b * problem.H + h, query0, key0, q0,
                                        k0);
      } else {
        add_product(S_or_dP, KMajor{smem.dO}, KMajor{smem.V});
      }
      // Read after write: half 1 reads slope o P of half 0, and all warps of half 0 read P for dV.
      __syncthreads();

      // 3. Half 1: dP += do_time v0, and G = slope o P o dP.
      if (!first_half) {
        add_time_products(S_or_dP, smem, v0);
        S_or_dP.each_at([&](float dp, int row, int col) { smem.dS(row, col) *= dp; });
      }
      // Read after write: all threads read G.
      __syncthreads();

      // 4. Half 0: dV += P^T do_sum, and do_time's part. Half 1: dK.
      if (first_half) {
        add_value_gradient(gradient, smem, v0);
      } else {
        add_distance_gradient(gradient, MnMajor{smem.dS}, MnMajor{smem.Q}, q0, smem.K, k0);
      }

      // 5. dQ.
      typename Shape::QueryGradient dQ(0.0f);
      add_distance_gradient(dQ, KMajor{smem.dS}, MnMajor{K_cols}, k0, Q_cols, q0);
      // Write after read: the next tile overwrites Q, do_sum, L, do_time, q0.
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

template <int... Sizes>
void start(DistanceShape<Sizes...>, const Attention& a) {
  using Shape = DistanceShape<Sizes...>;
  const Problem& p = a.problem;
  launch_prepare(a, /*clear_dQ=*/true);
  const unsigned query_blocks = blocks_for(p.Nq, PREPARE_WARPS) * static_cast<unsigned>(p.B * p.H);
  launch("centroid", {dim3(query_blocks), dim3(PREPARE_WARPS * WARP)}, centroid_kernel, p,
         view<const float>(a.O), view<const float>(a.dO), view<float>(a.workspace("D")),
         view<float>(a.workspace("do_sum")));
  Tensors tensors = tensors_of(a);
  tensors.dO = view<const float>(a.workspace("do_sum"));
  const unsigned blocks = blocks_for(p.Nk, Shape::Bc) * static_cast<unsigned>(p.B * p.Hkv);
  launch("fa2_centroid", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         backward_kernel<Shape>, score_rule(a), tensors, view<const float>(a.workspace("q0")),
         view<const float>(a.workspace("k0")), view<const float>(a.workspace("v0")));
}

std::vector<WorkspaceSpec> workspace_with_sum(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> all = workspace(p, pass);
  if (pass == Pass::backward) all.push_back({"do_sum", {p.B, p.H, p.Nq, p.d}});
  return all;
}

const Variant variant{
    .name = "centroid",
    .idea = "values as points: the gradient of their weighted sum and of its time component",
    .backward = start_one_of<distance_shapes<DistanceShape>>,
    .workspace = workspace_with_sum,
    .refuse = refuse,
    .tiles = choices_of<distance_shapes<DistanceShape>>,
    .atomic_dQ = true,
    .row_multiple = 4,
    .takes = general_problem | Features::lorentz | Features::centroid,
    .needs = Features::centroid,
    .only_if_fastest = true};

}  // namespace
}  // namespace flash::fa2_backward::more_centroid
