// 08 Tensor cores, backward, step 3: two halves of a block, one gradient each.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T + bias - L_i), masked         [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 2: S^T and dP^T share no operand, nor do dV and dK. Two halves of the warps compute one of each, as in chapter
// 07, and load no operand twice for it.
//   half 0:     S^T = K Q^T,   P^T = e^(S^T - L)  -> shared memory,            dV += P^T dO
//   half 1:     dP^T = V dO^T, dS^T = P^T o (dP^T - D) -> overwrites P^T,      dK += dS^T Q
//   all warps:  dQ += dS K
// - A warp holds one gradient instead of two, and therefore twice the keys: each operand that it loads serves two products.
// - The price: half 1 waits for the exponentials of half 0, and a tile takes three barriers.
// - dS^T is the product with P^T as rounded for dV, which is what shared memory holds. Steps 1 and 2 multiply by P^T in fp32.
// - Each half holds all columns of its gradient, so that there are no COLUMN_BLOCKS. Tiles are larger.
// parts/halves.cuh has the exchange of P^T, and add_to_dQ() of step 2 without COLUMN_BLOCKS.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see; dQ, dK, dV once. dQ_accum: cleared once, read and written once
//   per tile of K, read once by convert_kernel.  Workspace: L and D; dQ_accum.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts/halves.cuh"

namespace flash::tensor_cores::backward_3 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Warps>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, THREADS = Warps * WARP, HALF_WARPS = Warps / 2;
  static constexpr int ROW_FRAGMENTS = Bc / 16 / HALF_WARPS;  // of 16 rows of transposed scores, per warp
  static constexpr int QUERY_FRAGMENTS = Br / 8;              // of 8 columns of transposed scores
  // K, V; two tiles each of Q and dO; P or dS; L and D: 2 stages of 2 rows of Br floats, or 8 Br elements.
  static constexpr int SHARED_ELEMENTS = Width * (2 * Bc + 4 * Br) + Bc * Br + 2 * 4 * Br;
  static constexpr WarpGrid DQ_WARPS{Warps, Br, Width};
  // With 128 elements of S or dP per lane, or 192 with the gradient, nvcc spills on sm_80.
  static constexpr bool SPILLS = ROW_FRAGMENTS * QUERY_FRAGMENTS >= 32 || ROW_FRAGMENTS * (QUERY_FRAGMENTS + Width / 8) >= 48;
  static constexpr int MIN_SM = SPILLS ? 90 : min_sm(2 * SHARED_ELEMENTS, false);

  static_assert(Bc % (16 * HALF_WARPS) == 0, "the warps of a half share the keys in sixteens");
  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(2 * THREADS >= Br, "QueryStats::load_async() copies four elements per thread");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, BackwardTensors<T> all, Tensor<float> dQ_accum, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // this architecture is too old: never launched
  const Problem& problem = rule.problem;
  // The first keys, visible to the most queries under a causal mask, start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc, problem.B * problem.Hkv, heads_at_once);
  const int key0 = order.tile * Shape::Bc, b = order.head / problem.Hkv, kv_head = order.head % problem.Hkv;

  const Tile<T, Shape::Width> K_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Bc), V_smem(K_smem.end(), Shape::Bc);
  const auto Q_smem = [&](int stage) {  // two tiles of Q, then two of dO
    return Tile<T, Shape::Width>(V_smem.end() + stage * Shape::Br * Shape::Width, Shape::Br);
  };
  const auto dO_smem = [&](int stage) { return Q_smem(2 + stage); };
  // P^T of half 0, which half 1 reads and overwrites by dS^T; rows are keys.
  const Tile<T, Shape::Br> handover(dO_smem(1).end(), Shape::Bc);
  const auto stats_smem = [&](int stage) {
    return QueryStats{{reinterpret_cast<float*>(handover.end()) + stage * 2 * Shape::Br, 2, Shape::Br, Shape::Br}};
  };
  const bool first_half = threadIdx.x / WARP / Shape::HALF_WARPS == 0;                      // half 0
  const int warp_row = threadIdx.x / WARP % Shape::HALF_WARPS * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row of the tile
  const auto handover_rows = handover.below(warp_row);                                      // the warp's rows

  // One code for both halves, in which a matrix is named by its role:
  //           scores = keys for_scores^T    weights                    gradient += weights for_gradient
  //   half 0  S^T = K Q^T                   P^T = e^(S^T - L)          dV += P^T dO
  //   half 1  dP^T = V dO^T                 dS^T = P^T o (dP^T - D)    dK += dS^T Q
  const auto keys = of_half(first_half, K_smem, V_smem);
  const auto for_scores = [&](int stage) { return of_half(first_half, Q_smem(stage), dO_smem(stage)); };
  const auto for_gradient = [&](int stage) { return of_half(first_half, dO_smem(stage), Q_smem(stage)); };
  Accumulators<Shape::ROW_FRAGMENTS, Shape::Width / 8> gradient(0.0f);  // [16 ROW_FRAGMENTS, Width]; dK without the scale

  const QueryTiles<Shape::Br> queries(problem, kv_head, key0);
  const auto load_tile = [&](int iteration, QueryTile at) {
    const int stage = iteration % 2;
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.Q.head(b, at.h), at.query0).load_async(Q_smem(stage));
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.dO.head(b, at.h), at.query0).load_async(dO_smem(stage));
    stats_smem(stage).template load_async<Shape::Br>(all.L_and_D.head(b, at.h), at.query0);
  };
  QueryTile at = queries.first(problem);  // its head h and its first query, query0

  // 1. K, V, and the first tiles of Q, dO.
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.K.head(b, kv_head), key0).load_async(K_smem);
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.V.head(b, kv_head), key0).load_async(V_smem);
  load_tile(0, at);

  for (int iteration = 0; iteration < queries.iterations; ++iteration) {
    cp_async_wait_all();
    // Read after write: Q, dO, L, D of all threads have landed.
    // Write after read: no warp still reads the previous tiles, nor dS^T.
    __syncthreads();
    if (iteration + 1 < queries.iterations) load_tile(iteration + 1, queries.after(problem, at));
    const int stage = iteration % 2;
    const QueryStats stats = stats_smem(stage);

    // 2. Half 0: P^T, also to shared memory. Half 1: dP^T - D.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> scores(0.0f);   // transposed: [16 ROW_FRAGMENTS, Br]
    auto& weights = scores;                                                    // the same registers, after the softmax
    add_product(scores, keys.left(warp_row), for_scores(stage).transposed());  // (8.11), (8.12)
    if (first_half) {
      rule.apply</*Transposed=*/true>(scores, b * problem.H + at.h, at.query0, key0 + warp_row);
      exponentiate(scores, stats, rule.late_scale, rule.scale_first);
      store_in_lane_order(handover_rows, InRegisters<T, Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS / 2>(weights));
    } else {
      scores.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });  // (8.13)
    }
    // Read after write: half 1 reads P^T of half 0.
    __syncthreads();

    // 3. Half 1: dS^T, which overwrites P^T.
    if (!first_half) {
      multiply_by_Pt(scores, handover_rows);
      // Write after read: dS^T overwrites blocks of P^T that other lanes have read.
      __syncwarp();
      store(handover_rows, weights);
    }

    // 4. Half 0: dV += P^T dO (8.14). Half 1: dK += dS^T Q (8.15).
    const InRegisters<T, Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS / 2> weights_reg(weights);
    add_product(gradient, weights_reg, for_gradient(stage).right());

    // 5. dQ += dS K, by all warps.
    // Read after write: dS^T of all warps of half 1.
    __syncthreads();
    add_to_dQ<Shape>(dQ_accum.head(b, at.h), at.query0, handover, K_smem);
    at = queries.after(problem, at);
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have finished reading.
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
    launch("backward_halves",
           {dim3(static_cast<unsigned>(tiles * kv_heads)), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, score_rule(a), all, view<float>(dQ_accum), heads_at_once_backward<Shape>(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why) {
  return compiled_shape<BackwardShape<Sizes...>>(why, start<BackwardShape<Sizes...>>);
}

// Width, Br, Bc, warps.
constexpr CompiledShape shapes[] = {
    compiled<32, 128, 128, 8>("32 keys a warp"),      compiled<32, 64, 128, 8>("fits the registers of sm_80"),
    compiled<32, 64, 64, 8>("little shared memory"),  compiled<64, 128, 128, 8>("32 keys a warp"),
    compiled<64, 64, 128, 8>("less shared memory"),   compiled<64, 32, 64, 8>("little shared memory"),
    compiled<96, 64, 128, 8>("32 keys a warp"),       compiled<96, 32, 64, 8>("little shared memory"),
    compiled<128, 64, 128, 8>("32 keys a warp"),      compiled<128, 32, 128, 8>("fits the registers of sm_80"),
    compiled<128, 16, 64, 8>("little shared memory"), compiled<256, 32, 64, 8>("16 keys a warp"),
    compiled<256, 16, 32, 4>("little shared memory"),
};

const Variant variant = backward_step<shapes, true>("halves", "two halves of a block, one gradient each");

}  // namespace
}  // namespace flash::tensor_cores::backward_3
