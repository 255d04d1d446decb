// 08 Tensor cores, backward, step 4: two halves of a block, one tile apart.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 3: half 1 is one tile of queries behind half 0, so that neither waits for the
// other within a tile.
//   half 0, tile i:      S^T = K Q^T,   P^T = e^(scale S^T - L) -> shared memory,  dV += P^T dO
//   half 1, tile i - 1:  dP^T = V dO^T, dS^T = P^T o (dP^T - D) -> over P^T,       dK += dS^T Q
//   all warps, tile i - 2:  dQ += dS K; half 1 does it first and half 0 last, so that not all wait
// In each iteration half 1 uses the P^T that half 0 stored in the previous one: one barrier per
// iteration orders everything, and while one half computes exponentials the other keeps the tensor
// cores busy. Three tiles are in progress at a time.
//
// Grid, HBM, workspace, shapes: as step 2, without COLUMN_BLOCKS.
#pragma once

#include "08_tensor_cores/backward/shapes.hpp"
#include "08_tensor_cores/parts/halves.cuh"

namespace flash::tensor_cores::backward_4 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Warps>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, COLS = Width;
  static constexpr int HALF_WARPS = Warps / 2;
  static constexpr int ROW_FRAGMENTS = Bc / 16 / HALF_WARPS;  // of 16 rows of transposed scores
  static constexpr int QUERY_FRAGMENTS = Br / 8;              // of 8 columns of transposed scores
  static constexpr int THREADS = Warps * WARP;
  static constexpr int STAGES = 3;  // tiles of Q and dO: one per half, and one in flight
  // Tiles of P^T or dS^T: one that half 0 stores, one that half 1 turns into dS^T, one for dQ.
  static constexpr int PT_OR_DST_TILES = 3;
  static constexpr int SHARED_ELEMENTS = shared_elements(Width, Br, Bc, STAGES, PT_OR_DST_TILES);
  static constexpr WarpGrid DQ_WARPS{Warps, Br, Width};
  // With 128 elements of S or dP per lane, or 192 with the gradient, nvcc spills on sm_80.
  static constexpr bool SPILLS =
      ROW_FRAGMENTS * QUERY_FRAGMENTS >= 32 || ROW_FRAGMENTS * (QUERY_FRAGMENTS + Width / 8) >= 48;
  static constexpr int MIN_SM = SPILLS ? 90 : min_sm(2 * SHARED_ELEMENTS, false);

  static_assert(Bc % (16 * HALF_WARPS) == 0, "the warps of a half share the keys in sixteens");
  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(PT_OR_DST_TILES == STAGES, "P^T and dS^T go by the stage of their Q and dO");
  static_assert(2 * THREADS >= Br, "load_async() copies four elements of L and D per thread");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Problem problem, BackwardTensors<T> hbm, Tensor<float> dQ_accum,
                    int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc, problem.B * problem.Hkv,
                         heads_at_once);
  const int b = order.head / problem.Hkv, kv_head = order.head % problem.Hkv;
  const int key0 = order.tile * Shape::Bc;
  const SharedTiles<T, Shape> smem;
  const bool first_half = threadIdx.x / WARP / Shape::HALF_WARPS == 0;  // half 0
  // The warp's first row of the tile.
  const int warp_row = threadIdx.x / WARP % Shape::HALF_WARPS * 16 * Shape::ROW_FRAGMENTS;
  const auto K_or_V = of_half(first_half, smem.K, smem.V);

  // The tiles of Q with a query that sees a key of this tile, for every query head of the group.
  const QueryLoop<Shape::Br> queries(problem, kv_head, key0);
  QueryTile at = queries.first(problem);  // half 0's: its head h and its first query, query0
  QueryTile oldest = at;                  // two iterations behind: it is added to dQ
  const auto add_oldest_to_dQ = [&](int tile) {
    if (tile >= 0)
      add_to_dQ<Shape>(dQ_accum.head(b, oldest.h), oldest.query0,
                       smem.Pt_or_dSt(tile % Shape::STAGES), smem.K);
  };

  // 1. K, V, and the first tile of Q, dO, L, D.
  load_async<Shape::THREADS, Shape::Bc>(smem.K, hbm.K.head(b, kv_head), key0);
  load_async<Shape::THREADS, Shape::Bc>(smem.V, hbm.V.head(b, kv_head), key0);
  load_queries<Shape>(smem, 0, hbm, b, at.h, at.query0);

  // Half 0: dV. Half 1: dK, not scaled. [16 ROW_FRAGMENTS, Width]
  Accumulators<Shape::ROW_FRAGMENTS, Shape::Width / 8> gradient(0.0f);

  // Tile t goes to stage t % STAGES. Iteration:
  //        half 0 (P, dV)   half 1 (dS, dK)   all (dQ)   in shared memory
  //   0         0                 -               -       Q, dO of 0; 1 on its way
  //   1         1                 0               -       Q, dO of 0, 1; 2 on its way
  //   2         2                 1               0       Q, dO of 1, 2; 3 on its way, over 0
  // Q, dO, L, D of tile t: last read by half 1 in iteration t + 1, overwritten by the load that
  // iteration t + 2 starts.
  // P^T, then dS^T, of tile t: last read for dQ in iteration t + 2, overwritten by half 0 in t + 3.
  for (int iteration = 0; iteration < queries.iterations + 2; ++iteration) {
    cp_async_wait_all();
    // Read after write: Q, dO, L, D of all threads have landed, and P^T and dS^T of the previous
    // iteration are stored.
    // Write after read: no warp still reads Q, dO, L, D of tile iteration - 2, nor dS^T of tile
    // iteration - 3. Their buffers are filled next.
    __syncthreads();
    const QueryTile next = queries.after(problem, at);
    if (iteration + 1 < queries.iterations)
      load_queries<Shape>(smem, (iteration + 1) % Shape::STAGES, hbm, b, next.h, next.query0);

    // 2. Half 1: dQ += dS K.
    if (!first_half) add_oldest_to_dQ(iteration - 2);
    const int tile = iteration - (first_half ? 0 : 1);  // half 1 is one tile behind
    if (tile >= 0 && tile < queries.iterations) {
      const int stage = tile % Shape::STAGES;
      const auto Q_or_dO = of_half(first_half, smem.Q(stage), smem.dO(stage));
      const auto dO_or_Q = of_half(first_half, smem.dO(stage), smem.Q(stage));
      const auto Pt_rows = smem.Pt_or_dSt(stage).below(warp_row);  // the warp's

      // 3. Half 0: S^T = K Q^T, then P^T. Half 1: dP^T = V dO^T, then dS^T, which overwrites P^T.
      // [16 ROW_FRAGMENTS, Br]
      Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> St_or_dPt(0.0f);
      add_product(St_or_dPt, K_or_V.left(warp_row), Q_or_dO.transposed());  // (8.11), (8.12)
      if (first_half) {
        mask</*Transposed=*/true>(St_or_dPt, problem, at.query0, key0 + warp_row);
        recompute_P(St_or_dPt, smem.stats(stage), problem.scale);
      } else {
        softmax_backward(St_or_dPt, Pt_rows, smem.stats(stage));  // (8.13)
        // Write after read: dS^T overwrites blocks of P^T that other lanes have read.
        __syncwarp();
      }
      // Packed here, between the branches, once for P^T's tile and both products: otherwise nvcc
      // spills.
      const InRegisters<T, Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS / 2> Pt_or_dSt_reg(
          St_or_dPt);
      if (first_half) store_in_lane_order(Pt_rows, Pt_or_dSt_reg);
      if (!first_half) store(Pt_rows, St_or_dPt);

      // 4. Half 0: dV += P^T dO. Half 1: dK += dS^T Q.
      add_product(gradient, Pt_or_dSt_reg, dO_or_Q.right());  // (8.14), (8.15)
    }
    // 5. Half 0: dQ += dS K.
    if (first_half) add_oldest_to_dQ(iteration - 2);
    at = next;
    if (iteration >= 2) oldest = queries.after(problem, oldest);
  }
  // 6. Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  __syncthreads();
  gradient.each([&](float& x, int) { x *= first_half ? 1.0f : problem.scale; });
  write_rows((first_half ? hbm.dV : hbm.dK).head(b, kv_head), key0 + warp_row, gradient,
             of_half(first_half, smem.V, smem.K).below(warp_row));
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardTensors<T> hbm = prepare<T, Shape::Width>(a, &dQ_accum);
    const int kv_heads = p.B * p.Hkv, tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc));
    launch("backward_staggered",
           {dim3(static_cast<unsigned>(tiles * kv_heads)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, p, hbm, view<float>(dQ_accum),
           heads_at_once_backward<Shape>(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

const Variant variant = plain_backward_step<staggered_shapes<BackwardShape>, true>(
    "staggered", "two halves of a block, one tile apart");

}  // namespace
}  // namespace flash::tensor_cores::backward_4
