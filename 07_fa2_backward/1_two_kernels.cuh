// 07 FlashAttention-2, backward, step 1: two kernels, so that each sum has one owner.
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
// dV and dK sum over queries, dQ sums over keys: a block can own dK and dV or dQ, not both. So we
// run both loops, one kernel each, and compute S and dP in both: seven products. No two blocks add
// to the same element, so every run gives the same bits.
//
// New since 05: L replaces m and l, and prepare_kernel computes D once per query. Tiles in
// registers come from 06 (parts.cuh), and so do copies ahead in dq_kernel; dk_dv_kernel waits as
// soon as it has started its copies. All warps of a block divide the rows of each product.
//
// P is recomputed from Q, K and L. Tiles with no visible pair are skipped: dk_dv begins at the
// first query that sees a key of its tile, dq ends at the last key that a query of its tile sees.
//
// Grids: Tc*B*Hkv, where a block loops over all query heads that share its key/value head; Tr*B*H.
// HBM: K, V once, Q, dO, L, D once per tile of K that they see; then Q, dO, L, D once, K, V once
//   per tile of Q that sees them; dQ written once; dK, dV once per query head, which first reads
//   the sum of the previous heads (7.7).  Workspace: D.
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "07_fa2_backward/parts.cuh"
#include "07_fa2_backward/shapes.hpp"

namespace flash::fa2_backward::step_1 {
namespace {

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1) dk_dv_kernel(Problem problem, Tensors hbm) {
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const int heads = problem.B * problem.Hkv;
  const int b = blockIdx.x % heads / problem.Hkv, kv_head = blockIdx.x % heads % problem.Hkv;
  const int key0 = blockIdx.x / heads * Shape::Bc;
  const SharedTiles smem = shared_tiles<Shape>();

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
    typename Shape::KeyGradient dV(0.0f), dK(0.0f);  // dK not scaled; of this query head only
    for (int query0 = first_query; query0 < problem.Nq; query0 += Shape::Br) {
      cp_async_wait<0>();
      // Read after write: all tiles have landed.
      __syncthreads();

      // 2. S = Q K^T and dP = dO V^T. A thread has the same elements of both.
      typename Shape::Scores S(0.0f), dP(0.0f);
      add_product(S, KMajor{smem.Q}, KMajor{smem.K});
      mask(S, problem, query0, key0);
      add_product(dP, KMajor{smem.dO}, KMajor{smem.V});

      // 3. P, and dS = P o (dP - D) with the P that the same thread has stored.
      store_P(smem, S, problem.scale);
      store_dS(smem, dP);
      // Read after write: a thread reads columns of P and dS that all warps have stored.
      __syncthreads();

      // 4. dV += P^T dO, dK += dS^T Q.
      add_product(dV, MnMajor{smem.P}, MnMajor{smem.dO});
      add_product(dK, MnMajor{smem.dS}, MnMajor{smem.Q});
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
    dK.each([&](float& x, int) { x *= problem.scale; });
    write_tile(hbm.dV.head(b, kv_head), key0, 0, dV, h > first_head);
    write_tile(hbm.dK.head(b, kv_head), key0, 0, dK, h > first_head);
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

    // 2. S = Q K^T and dP = dO V^T. A thread has the same elements of both.
    typename Shape::Scores S(0.0f), dP(0.0f);
    add_product(S, KMajor{smem.Q}, KMajor{smem.K});
    mask(S, problem, query0, key0);
    add_product(dP, KMajor{smem.dO}, KMajor{smem.V});

    // 3. P, and dS = P o (dP - D).
    store_P(smem, S, problem.scale);
    store_dS(smem, dP);
    // Read after write: a thread reads rows of dS that other lanes have stored.
    // Write after read: no thread still reads V_j.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(smem.V, V, key0 + Shape::Bc);
    cp_async_commit();

    // 4. dQ += dS K.
    add_product(dQ, KMajor{smem.dS}, MnMajor{smem.K});
    // Write after read: the next tile overwrites K, and then dS.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(smem.K, K, key0 + Shape::Bc);
    cp_async_commit();
  }
  // Without a tile of K nothing has waited for Q, dO, L and D: their copies end before the block
  // does.
  cp_async_wait<0>();
  dQ.each([&](float& x, int) { x *= problem.scale; });
  write_tile(hbm.dQ.head(b, h), query0, 0, dQ);
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
  launch("fa2_two_kernels_dk_dv",
         {dim3(blocks_for(p.Nk, Shape::Bc) * kv_heads), dim3(Shape::THREADS), shared_bytes},
         dk_dv_kernel<Shape>, p, tensors_of(a));
  launch("fa2_two_kernels_dq",
         {dim3(blocks_for(p.Nq, Shape::Br) * heads), dim3(Shape::THREADS), shared_bytes},
         dq_kernel<Shape>, p, tensors_of(a));
}

const Variant variant = plain_step<two_kernels_shapes<OwnShape>>(
    "two_kernels", "dK and dV over tiles of K, dQ over tiles of Q: deterministic, seven products");

}  // namespace
}  // namespace flash::fa2_backward::step_1
