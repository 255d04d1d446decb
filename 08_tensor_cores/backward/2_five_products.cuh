// 08 Tensor cores, backward, step 2: one kernel over tiles of K and V; dQ is summed by atomics.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 1: each block adds its share of dQ_i to HBM, so that S and dP are computed once,
// not twice: five products instead of seven. The rows of dS K are queries, which no warp owns: dS
// goes through shared memory, and all warps share the product (parts/add_to_dQ.cuh). dQ_accum sums
// in fp32 and in accumulator order, in which the 32 lanes of a warp add to 512 adjacent bytes. A
// final kernel scales it and converts it to 16-bit rows (parts/before_and_after.cuh).
//
// Grid: Tc*B*Hkv*COLUMN_BLOCKS, where a block loops over all query heads that share its key/value
//   head.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see, all of it COLUMN_BLOCKS times; dQ,
//   dK, dV once. dQ_accum: cleared once, read and written once per tile of K, read once by
//   convert_kernel.
// Workspace: L and D; dQ_accum.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/backward/shapes.hpp"
#include "08_tensor_cores/parts/add_to_dQ.cuh"

namespace flash::tensor_cores::backward_2 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows of transposed scores, per warp
  static constexpr int QUERY_FRAGMENTS = Br / 8;      // of 8 columns of transposed scores
  static constexpr int THREADS = Bc / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;  // per SM (occupancy); they share its registers
  static constexpr int STAGES = 2, PT_OR_DST_TILES = 1;  // tiles of Q and dO; of dS^T
  // One up to d = 128. At 256 registers hold half of the columns of dK and dV, and COLUMN_BLOCKS
  // blocks share a tile of keys.
  static constexpr int COLS = Width > 128 ? 128 : Width, COLUMN_BLOCKS = Width / COLS;
  static constexpr int SHARED_ELEMENTS = shared_elements(Width, Br, Bc, STAGES, PT_OR_DST_TILES);
  static constexpr WarpGrid DQ_WARPS{THREADS / WARP, Br, COLS};
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2);

  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(2 * THREADS >= Br, "load_async() copies four elements of L and D per thread");
  static_assert(DQ_WARPS.rows * DQ_WARPS.cols * WARP == THREADS, "each warp has a share of dQ");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    backward_kernel(Problem problem, BackwardTensors<T> hbm, Tensor<float> dQ_accum,
                    int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc * Shape::COLUMN_BLOCKS,
                         problem.B * problem.Hkv, heads_at_once);
  const int b = order.head / problem.Hkv, kv_head = order.head % problem.Hkv;
  const int key0 = order.tile / Shape::COLUMN_BLOCKS * Shape::Bc;
  const int col0 = order.tile % Shape::COLUMN_BLOCKS * Shape::COLS;
  const SharedTiles<T, Shape> smem;
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row

  // The tiles of Q with a query that sees a key of this tile, for every query head of the group.
  const QueryLoop<Shape::Br> queries(problem, kv_head, key0);
  QueryTile at = queries.first(problem);  // its head h and its first query, query0

  // 1. K, V, and the first tile of Q, dO, L, D.
  load_async<Shape::THREADS, Shape::Bc>(smem.K, hbm.K.head(b, kv_head), key0);
  load_async<Shape::THREADS, Shape::Bc>(smem.V, hbm.V.head(b, kv_head), key0);
  load_queries<Shape>(smem, 0, hbm, b, at.h, at.query0);
  int stage = 0;  // of this tile of queries

  // [16 ROW_FRAGMENTS, COLS]; dK not scaled.
  Accumulators<Shape::ROW_FRAGMENTS, Shape::COLS / 8> dV(0.0f), dK(0.0f);
  for (int iteration = 0; iteration < queries.iterations;
       ++iteration, at = queries.after(problem, at), stage = 1 - stage) {
    cp_async_wait_all();
    // Read after write: the tiles of all threads have landed.
    // Write after read: no warp still reads the previous ones, nor dS^T.
    __syncthreads();
    const QueryTile next = queries.after(problem, at);
    if (iteration + 1 < queries.iterations)
      load_queries<Shape>(smem, 1 - stage, hbm, b, next.h, next.query0);

    // 2. S^T = K Q^T and dP^T = V dO^T. A lane has the same elements of both.
    // [16 ROW_FRAGMENTS, Br]
    Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> St(0.0f), dPt(0.0f);
    add_product(St, smem.K.left(warp_row), smem.Q(stage).transposed());  // (8.11)
    mask</*Transposed=*/true>(St, problem, at.query0, key0 + warp_row);
    add_product(dPt, smem.V.left(warp_row), smem.dO(stage).transposed());  // (8.12)

    // 3. P^T, and dS^T = P^T o (dP^T - D), in the same registers.
    recompute_P(St, smem.stats(stage), problem.scale);
    auto& Pt = St;
    softmax_backward(dPt, Pt, smem.stats(stage));  // (8.13)
    auto& dSt = dPt;
    store(smem.Pt_or_dSt().below(warp_row), dSt);

    // 4. dV += P^T dO, dK += dS^T Q.
    add_product(dV, rounded<T>(Pt), smem.dO(stage).right(col0));  // (8.14)
    add_product(dK, rounded<T>(dSt), smem.Q(stage).right(col0));  // (8.15)

    // 5. dQ += dS K, by all warps.
    // Read after write: dS^T of all warps. The barrier at the top of the loop separates it from
    // the next tile's dS^T.
    __syncthreads();
    add_to_dQ<Shape>(dQ_accum.head(b, at.h), at.query0, smem.Pt_or_dSt(), smem.K, col0);
  }
  // 6. Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  __syncthreads();
  dK.each([&](float& x, int) { x *= problem.scale; });
  write_rows(hbm.dV.head(b, kv_head), key0 + warp_row, dV, smem.V.below(warp_row), col0);
  write_rows(hbm.dK.head(b, kv_head), key0 + warp_row, dK, smem.K.below(warp_row), col0);
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardTensors<T> hbm = prepare<T, Shape::Width>(a, &dQ_accum);
    const int kv_heads = p.B * p.Hkv,
              tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)) * Shape::COLUMN_BLOCKS;
    launch("backward_five_products",
           {dim3(static_cast<unsigned>(tiles * kv_heads)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, p, hbm, view<float>(dQ_accum),
           heads_at_once_backward<Shape>(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

const Variant variant = plain_backward_step<five_products_shapes<BackwardShape>, true>(
    "five_products", "five products; dQ summed by atomics in the order of fragments");

}  // namespace
}  // namespace flash::tensor_cores::backward_2
