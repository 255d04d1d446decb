// 07 FlashAttention-2, backward, step 2: two halves of a block.
//
//   S = scale Q_i K_j^T, masked;   P = e^(S - L_i)                                      (7.1)
//   dP = dO_i V_j^T                                                                     (7.2)
//   dS = P o (dP - D_i)      with D = rowsum(dO o O) from prepare_kernel                (7.3)
//   dk_dv_kernel: for every tile j of K, V (one block each), over the tiles i of Q:
//     dV_j += P^T dO_i                                                                  (7.4)
//     dK_j += scale dS^T Q_i                                                            (7.5)
//   dq_kernel: for every tile i of Q (one block each), over the tiles j of K, V:
//     dQ_i += scale dS K_j                                                              (7.6)
//
// New since step 1: the products form pairs that share no operand, S and dP, then dV and dK. A
// block has two halves of four warps, and each computes one product of a pair. The four warps
// divide the rows that eight divided before: a thread has twice as many elements of one product,
// and loads fewer operands for each. P now crosses from one half to the other, which takes a
// barrier more. Both halves compute dQ, half of the columns each.
//
// Grids, HBM, workspace, shapes: as step 1 (7.7). Block: 8 warps.
#pragma once

#include "07_fa2_backward/halves.cuh"
#include "07_fa2_backward/shapes.hpp"

namespace flash::fa2_backward::step_2 {
namespace {

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1) dk_dv_kernel(Problem problem, Tensors hbm) {
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const int heads = problem.B * problem.Hkv;
  const int b = blockIdx.x % heads / problem.Hkv, kv_head = blockIdx.x % heads % problem.Hkv;
  const int key0 = blockIdx.x / heads * Shape::Bc;
  const SharedTiles smem = shared_tiles<Shape>();
  const bool first_half = threadIdx.x < Shape::HALF_THREADS;
  // The matrices of each half. Half 0: S = Q K^T, dV += P^T dO. Half 1: dP = dO V^T, dK += dS^T Q.
  const auto Q_or_dO = of_half(first_half, smem.Q, smem.dO);
  const auto K_or_V = of_half(first_half, smem.K, smem.V);
  const auto P_or_dS = of_half(first_half, smem.P, smem.dS);
  const auto dO_or_Q = of_half(first_half, smem.dO, smem.Q);

  // The tiles of Q, starting at the first query that sees a key of this tile, for every query head
  // of the group. There is at least one: the last query sees every key.
  const int first_query = problem.first_query(key0, Shape::Br);
  const int first_head = kv_head * problem.group_size();
  const int end_head = first_head + problem.group_size();

  // 1. K, V, and the first tile of Q, dO, L, D.
  load_async<Shape, Shape::Bc>(smem.K, hbm.K.head(b, kv_head), key0);
  load_async<Shape, Shape::Bc>(smem.V, hbm.V.head(b, kv_head), key0);
  load_queries<Shape>(smem, hbm, b, first_head, first_query);
  cp_async_commit();

  for (int h = first_head; h < end_head; ++h) {
    // Half 0: dV. Half 1: dK, not scaled. Of this query head only.
    typename Shape::KeyGradient gradient(0.0f);
    for (int query0 = first_query; query0 < problem.Nq; query0 += Shape::Br) {
      cp_async_wait<0>();
      // Read after write: all tiles have landed.
      __syncthreads();

      // 2. Half 0: S = Q K^T, then P. Half 1: dP = dO V^T.
      typename Shape::Scores S_or_dP(0.0f);
      add_product(S_or_dP, KMajor{Q_or_dO}, KMajor{K_or_V});
      if (first_half) {
        mask(S_or_dP, problem, query0, key0);
        store_P(smem, S_or_dP, problem.scale);
      }
      // Read after write: half 1 reads P for dS, and all warps of half 0 read it for dV.
      __syncthreads();

      // 3. Half 1: dS = P o (dP - D).
      if (!first_half) store_dS(smem, S_or_dP);
      // Read after write: half 1 reads rows of dS that its other warps have written.
      __syncthreads();

      // 4. Half 0: dV += P^T dO. Half 1: dK += dS^T Q.
      add_product(gradient, MnMajor{P_or_dS}, MnMajor{dO_or_Q});
      // Write after read: the next tile overwrites Q, dO, L, D, and then P, dS.
      __syncthreads();
      const bool last_tile = query0 + Shape::Br >= problem.Nq;
      if (!last_tile || h + 1 < end_head)
        load_queries<Shape>(smem, hbm, b, last_tile ? h + 1 : h,
                            last_tile ? first_query : query0 + Shape::Br);
      cp_async_commit();
    }

    // 5. Sum each head separately, then add up the heads: a single chain of additions over all
    // queries of a group would be less precise (chapter 05, section 5).
    const float factor = first_half ? 1.0f : problem.scale;
    gradient.each([&](float& x, int) { x *= factor; });
    write_tile((first_half ? hbm.dV : hbm.dK).head(b, kv_head), key0, 0, gradient, h > first_head);
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1) dq_kernel(Problem problem, Tensors hbm) {
  // Under a causal mask the last queries see the most keys: their blocks start first.
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  const int b = blockIdx.x % heads / problem.H, h = blockIdx.x % heads % problem.H;
  const int query0 =
      (problem.causal ? Tr - 1 - blockIdx.x / heads : blockIdx.x / heads) * Shape::Br;
  const Matrix<const float> K = hbm.K.head(b, problem.kv_head(h));
  const Matrix<const float> V = hbm.V.head(b, problem.kv_head(h));
  const SharedTiles smem = shared_tiles<Shape>();
  const bool first_half = threadIdx.x < Shape::HALF_THREADS;
  const int dQ_col0 = first_half ? 0 : Shape::Width / 2;  // this half's first column of dQ
  const SharedMatrix<float> K_cols{smem.K.data + dQ_col0, Shape::Bc, Shape::Width / 2,
                                   Shape::STRIDE};
  // The matrices of each half. Half 0: S = Q K^T. Half 1: dP = dO V^T.
  const auto Q_or_dO = of_half(first_half, smem.Q, smem.dO);
  const auto K_or_V = of_half(first_half, smem.K, smem.V);
  typename Shape::QueryGradient dQ(0.0f);  // not scaled
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);

  // 1. Q, dO, L, D, and the first tile of K, V.
  load_queries<Shape>(smem, hbm, b, h, query0);
  if (key_end > 0) {
    load_async<Shape, Shape::Bc>(smem.K, K, 0);
    load_async<Shape, Shape::Bc>(smem.V, V, 0);
  }
  cp_async_commit();

  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    cp_async_wait<0>();
    // Read after write: the tiles of all threads have landed.
    __syncthreads();

    // 2. Half 0: S = Q K^T, then P. Half 1: dP = dO V^T.
    typename Shape::Scores S_or_dP(0.0f);
    add_product(S_or_dP, KMajor{Q_or_dO}, KMajor{K_or_V});
    if (first_half) {
      mask(S_or_dP, problem, query0, key0);
      store_P(smem, S_or_dP, problem.scale);
    }
    // Read after write: half 1 reads P of half 0. Write after read: no thread still reads V_j.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(smem.V, V, key0 + Shape::Bc);
    cp_async_commit();

    // 3. Half 1: dS = P o (dP - D).
    if (!first_half) store_dS(smem, S_or_dP);
    // Read after write: all threads read dS.
    __syncthreads();

    // 4. dQ += dS K.
    add_product(dQ, KMajor{smem.dS}, MnMajor{K_cols});
    // Write after read: the next tile overwrites K, and then dS.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(smem.K, K, key0 + Shape::Bc);
    cp_async_commit();
  }
  // Without a tile of K nothing has waited for Q, dO, L and D: their copies end before the block
  // does.
  cp_async_wait<0>();
  dQ.each([&](float& x, int) { x *= problem.scale; });
  write_tile(hbm.dQ.head(b, h), query0, dQ_col0, dQ);
}

/// BackwardShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct OwnShape : BackwardShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  const Problem& p = a.problem;
  const unsigned kv_heads = static_cast<unsigned>(p.B * p.Hkv);
  const unsigned heads = static_cast<unsigned>(p.B * p.H);
  const std::size_t shared_bytes = Shape::SHARED_FLOATS * sizeof(float);
  launch_prepare(a, /*clear_dQ=*/false);
  launch("fa2_two_halves_dk_dv",
         {dim3(blocks_for(p.Nk, Shape::Bc) * kv_heads), dim3(Shape::THREADS), shared_bytes},
         dk_dv_kernel<Shape>, p, tensors_of(a));
  launch("fa2_two_halves_dq",
         {dim3(blocks_for(p.Nq, Shape::Br) * heads), dim3(Shape::THREADS), shared_bytes},
         dq_kernel<Shape>, p, tensors_of(a));
}

const Variant variant = plain_step<two_halves_shapes<OwnShape>>(
    "two_halves", "each half of a block computes one product of a pair: larger tiles for a thread");

}  // namespace
}  // namespace flash::fa2_backward::step_2
