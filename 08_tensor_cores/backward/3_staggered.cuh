// 08 Tensor cores, backward, step 3: two halves of a block, one tile apart.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 2: S^T and dP^T share no operand, nor do dV and dK. Two halves of the warps
// compute one of each, as in chapter 07, and load no operand twice for it. So that neither waits
// for the other within a tile, they work on different tiles of Q.
//   half 0, tile i:      S^T = K Q^T,   P^T = e^(S^T - L)  -> shared memory,        dV += P^T dO
//   half 1, tile i - 1:  dP^T = V dO^T, dS^T = P^T o (dP^T - D) -> over P^T,        dK += dS^T Q
//   all warps, tile i - 2:  dQ += dS K; half 1 does it first and half 0 last, so that not all wait
// - A warp holds one gradient instead of two, and therefore twice the keys: each operand that it
//   loads serves two products, and there are no COLUMN_BLOCKS.
// - In each iteration half 1 uses the P^T that half 0 stored in the previous one: one barrier per
//   iteration orders everything, and while one half computes exponentials the other keeps the
//   tensor cores busy. Three tiles are in progress at a time.
// - dS^T is the product with P^T as rounded for dV, which is what shared memory holds. Steps 1
//   and 2 multiply by P^T in fp32.
// backward_tiles.cuh has the exchange of P^T, and add_to_dQ() of step 2 without COLUMN_BLOCKS.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see; dQ, dK, dV once. dQ_accum: cleared
//   once, read and written once per tile of K, read once by convert_kernel.
// Workspace: L and D; dQ_accum.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts/backward_tiles.cuh"

namespace flash::tensor_cores::backward_3 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Warps>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int HALF_WARPS = Warps / 2;
  static constexpr int ROW_FRAGMENTS = Bc / 16 / HALF_WARPS;  // of 16 rows of transposed scores
  static constexpr int QUERY_FRAGMENTS = Br / 8;              // of 8 columns of transposed scores
  static constexpr int THREADS = Warps * WARP;
  // Tiles of Q, dO: one per half, and one in flight. Tiles of P^T or dS^T: one that half 0 stores,
  // one that half 1 turns into dS^T, one for dQ.
  static constexpr int STAGES = 3;
  // K, V; the stages.
  static constexpr int SHARED_ELEMENTS =
      Width * 2 * Bc + STAGES * (2 * Width * Br + 4 * Br + Bc * Br);
  static constexpr WarpGrid DQ_WARPS{Warps, Br, Width};
  // With 128 elements of S or dP per lane, or 192 with the gradient, nvcc spills on sm_80.
  static constexpr bool SPILLS =
      ROW_FRAGMENTS * QUERY_FRAGMENTS >= 32 || ROW_FRAGMENTS * (QUERY_FRAGMENTS + Width / 8) >= 48;
  static constexpr int MIN_SM = SPILLS ? 90 : min_sm(2 * SHARED_ELEMENTS, false);

  static_assert(Bc % (16 * HALF_WARPS) == 0, "the warps of a half share the keys in sixteens");
  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(2 * THREADS >= Br, "QueryStats::load_async() copies four elements per thread");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Problem problem, BackwardTensors<T> all, Tensor<float> dQ_accum,
                    int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // The first keys, visible to the most queries under a causal mask, start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc, problem.B * problem.Hkv,
                         heads_at_once);
  const int key0 = order.tile * Shape::Bc;
  const int b = order.head / problem.Hkv, kv_head = order.head % problem.Hkv;

  const Tile<T, Shape::Width> K_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Bc),
      V_smem(K_smem.end(), Shape::Bc);
  const auto Q_smem = [&](int stage) {  // the tiles of Q, then those of dO
    return Tile<T, Shape::Width>(V_smem.end() + stage * Shape::Br * Shape::Width, Shape::Br);
  };
  const auto dO_smem = [&](int stage) { return Q_smem(Shape::STAGES + stage); };
  // P^T of half 0, which half 1 reads and overwrites by dS^T; rows are keys.
  const auto handover = [&](int stage) {
    return Tile<T, Shape::Br>(dO_smem(Shape::STAGES - 1).end() + stage * Shape::Bc * Shape::Br,
                              Shape::Bc);
  };
  const auto stats_smem = [&](int stage) {
    return QueryStats{
        {reinterpret_cast<float*>(handover(Shape::STAGES - 1).end()) + stage * 2 * Shape::Br, 2,
         Shape::Br, Shape::Br}};
  };
  const bool first_half = threadIdx.x / WARP / Shape::HALF_WARPS == 0;  // half 0
  // The warp's first row of the tile.
  const int warp_row = threadIdx.x / WARP % Shape::HALF_WARPS * 16 * Shape::ROW_FRAGMENTS;

  // One code for both halves:
  //           scores = K_or_V Q_or_dO^T     weights                    gradient += weights dO_or_Q
  //   half 0  S^T = K Q^T                   P^T = e^(S^T - L)          dV += P^T dO
  //   half 1  dP^T = V dO^T                 dS^T = P^T o (dP^T - D)    dK += dS^T Q
  const auto K_or_V = of_half(first_half, K_smem, V_smem);
  const auto Q_or_dO = [&](int stage) {
    return of_half(first_half, Q_smem(stage), dO_smem(stage));
  };
  const auto dO_or_Q = [&](int stage) {
    return of_half(first_half, dO_smem(stage), Q_smem(stage));
  };
  // [16 ROW_FRAGMENTS, Width]; dK without the scale.
  Accumulators<Shape::ROW_FRAGMENTS, Shape::Width / 8> gradient(0.0f);

  const QueryTiles<Shape::Br> queries(problem, kv_head, key0);
  const auto load_tile = [&](int iteration, QueryTile at) {
    const int stage = iteration % Shape::STAGES;
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.Q.head(b, at.h), at.query0)
        .load_async(Q_smem(stage));
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.dO.head(b, at.h), at.query0)
        .load_async(dO_smem(stage));
    stats_smem(stage).template load_async<Shape::Br>(all.L_and_D.head(b, at.h), at.query0);
  };
  QueryTile at = queries.first(problem);  // its head h and its first query, query0
  QueryTile oldest = at;                  // two iterations behind: it is added to dQ
  const auto add_oldest_to_dQ = [&](int oldest_tile) {
    if (oldest_tile >= 0) {
      add_to_dQ<Shape>(dQ_accum.head(b, oldest.h), oldest.query0,
                       handover(oldest_tile % Shape::STAGES), K_smem);
    }
  };

  // 1. K, V, and the first tiles of Q, dO.
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.K.head(b, kv_head), key0)
      .load_async(K_smem);
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.V.head(b, kv_head), key0)
      .load_async(V_smem);
  load_tile(0, at);

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
    // iteration - 3. Their buffers are filled next; dS^T of tile iteration - 2 is still to be read
    // for dQ.
    __syncthreads();
    if (iteration + 1 < queries.iterations) load_tile(iteration + 1, queries.after(problem, at));

    // 2. Half 1: dQ += dS K.
    if (!first_half) add_oldest_to_dQ(iteration - 2);
    const int tile = iteration - (first_half ? 0 : 1);  // half 1 is one tile behind
    if (tile >= 0 && tile < queries.iterations) {
      // 3. Half 0: P^T. Half 1: dS^T, which overwrites it.
      const int stage = tile % Shape::STAGES;
      const QueryStats stats = stats_smem(stage);
      const auto handover_rows = handover(stage).below(warp_row);  // the warp's rows
      // Transposed: [16 ROW_FRAGMENTS, Br].
      Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> scores(0.0f);
      auto& weights = scores;  // the same registers, after the softmax
      add_product(scores, K_or_V.left(warp_row), Q_or_dO(stage).transposed());  // (8.11), (8.12)
      if (first_half) {
        mask</*Transposed=*/true>(problem, scores, at.query0, key0 + warp_row);
        exponentiate(scores, stats, problem.scale, /*subtract_first=*/false);
      } else {
        scores.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });  // (8.13)
        multiply_by_Pt(scores, handover_rows);
        // Write after read: dS^T overwrites blocks of P^T that other lanes have read.
        __syncwarp();
      }
      // Packed once, for the tile and the product.
      const InRegisters<T, Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS / 2> weights_reg(weights);
      if (first_half) {
        store_in_lane_order(handover_rows, weights_reg);
      } else {
        store(handover_rows, weights);
      }

      // 4. Half 0: dV += P^T dO (8.14). Half 1: dK += dS^T Q (8.15).
      add_product(gradient, weights_reg, dO_or_Q(stage).right());
    }
    // 5. Half 0: dQ += dS K.
    if (first_half) add_oldest_to_dQ(iteration - 2);
    at = queries.after(problem, at);
    if (iteration >= 2) oldest = queries.after(problem, oldest);
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  __syncthreads();
  gradient.each([&](float& x, int) { x *= first_half ? 1.0f : problem.scale; });
  write_rows((first_half ? all.dV : all.dK).head(b, kv_head), key0 + warp_row, gradient,
             of_half(first_half, V_smem, K_smem).below(warp_row));
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardTensors<T> all = prepare<T, Shape::Width>(a, &dQ_accum);
    const int kv_heads = p.B * p.Hkv, tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc));
    launch("backward_staggered",
           {dim3(static_cast<unsigned>(tiles * kv_heads)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, p, all, view<float>(dQ_accum),
           heads_at_once_backward<Shape>(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<BackwardShape<Sizes...>>(why, start<BackwardShape<Sizes...>>, speed);
}

// Width, Br, Bc, warps; speed relative to the first of the width (left out: 3/4 of the line
// before), as measured with --tune on an H200.
constexpr CompiledShape shapes[] = {
    compiled<32, 128, 128, 8>("32 keys a warp"),
    compiled<32, 64, 128, 8>("fits the registers of sm_80"),
    compiled<32, 64, 64, 8>("little shared memory"),
    compiled<64, 128, 128, 8>("half the barriers"),
    compiled<64, 64, 128, 8>("32 keys a warp", 0.89),
    compiled<64, 64, 64, 8>("little shared memory", 0.63),
    compiled<64, 32, 64, 8>("least shared memory", 0.55),
    compiled<96, 64, 128, 8>("32 keys a warp"),
    compiled<96, 32, 128, 8>("less shared memory"),
    compiled<96, 32, 64, 8>("little shared memory"),
    compiled<96, 16, 64, 8>("least shared memory"),
    compiled<128, 64, 128, 8>("32 keys a warp"),
    compiled<128, 32, 128, 8>("less shared memory", 0.82),
    compiled<128, 32, 64, 8>("little shared memory", 0.58),
    compiled<128, 16, 64, 8>("least shared memory", 0.43),
    compiled<256, 32, 64, 8>("16 keys a warp"),
    compiled<256, 16, 64, 8>("less shared memory"),
    compiled<256, 16, 32, 4>("little shared memory"),
};

const Variant variant =
    plain_backward_step<shapes, true>("staggered", "two halves of a block, one tile apart");

}  // namespace
}  // namespace flash::tensor_cores::backward_3
