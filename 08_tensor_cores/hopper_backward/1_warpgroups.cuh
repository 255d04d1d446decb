// 08 Tensor cores, Hopper backward, step 1: the TMA loads, and warpgroups multiply: five wgmma
// products per tile.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since backward/2_five_products.cuh: the copies of Hopper forward, step 1, and the products of
// its step 2. Here wgmma multiplies 64 keys by a tile of queries, which it reads from shared
// memory. Keys are still the rows of scores, so that P^T and dS^T are the left operands of (8.14)
// and (8.15) where they are, in registers. Also new:
// - A lane masks by two bounds (mask_transposed()).
// - L comes times log2(e) (recompute_P_log2(), which says what that costs): no rule for large L.
// - A block has all columns of dK and dV. As many heads run at a time as give each SM a block.
//
// The fifth product, dQ, needs the dS^T of other warps. They store it, and wgmma sums down the rows
// of dS^T and K (MN-major), so that no tile is transposed. Each warpgroup multiplies a share of dQ.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head. Block:
//   warpgroups; each owns 64 keys.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see; dQ_accum cleared once, read and
//   written once per tile of K, and read once at the end; dQ, dK, dV once.
// Workspace: L log2(e), D; dQ_accum.
// Shapes: d up to 128, padded with zeros to 32, 64, 96 or 128: a block holds whole rows of dK and
//   dV. more/relay.cuh takes wider heads. Needs sm_90a.
//
// Map of this folder: after ../backward and ../hopper_forward, steps 1 to 5 in their order; 5 is
// the fastest. shapes.hpp has their tile sizes, and which kernel runs where. more/ has step 5 for
// any bias and scale (general) and for windows, softcaps and sequences (options), step 4 by turns
// (ordered, ordered_softcap), of which divided makes more blocks; relay is for wide heads; how they
// share a loop: more/loop_by_rule.cuh. In ../parts
//   panels_backward.cuh    first: a block's KeyWork, shared memory and loads; products; P
//   dQ_of_warpgroups.cuh   dQ by all warpgroups, from step 4 on by one; from 3 on, the adder
//   before_and_after.cuh   tiles of queries, L and D, dS; dQ_accum; the kernels before and after
//   panels.cuh             tiles, products, rings, as in ../hopper_forward
#pragma once

#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/dQ_of_warpgroups.cuh"

namespace flash::tensor_cores::hopper_backward_1 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  static constexpr int STAGES = 2, DS_STAGES = 1;  // tiles of Q and dO, and of dS in shared memory
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, THREADS = CONSUMERS * WARPGROUP;
  template <class T>
  using Shared = BackwardShared<T, Width, Br, Bc, STAGES, DS_STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && Br % WARPGROUP_ROWS == 0 && Width % 16 == 0,
                "whole products");
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
};

/// A warpgroup: its rows of a tile of K and V.
template <class T, class Shape>
__device__ void consume(Shared<T, Shape>& shared, const Problem& problem, const BackwardMaps& maps,
                        const BackwardTensors<T>& hbm, const Tensor<float>& dQ_accum,
                        const KeyWork<Shape>& work) {
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  const int index = warpgroup();
  const auto K_rows = shared.K.below(index * WARPGROUP_ROWS),
             V_rows = shared.V.below(index * WARPGROUP_ROWS);
  // [16, Width] in each warp; dK without the scale.
  Accumulators<1, Shape::COL_FRAGMENTS> dK(0.0f), dV(0.0f);

  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    // The mbarriers of a stage change phase with each tile that lands there.
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    auto &Q = shared.Q[stage], &dO = shared.dO[stage];
    auto& dSt_smem = shared.dSt[0];

    // The prefetch of the next tiles starts.
    // Write after read: no warp still reads the previous tiles or dS^T.
    __syncthreads();
    if (threadIdx.x == 0 && iteration + 1 < work.iterations) {
      const QueryTile next = work.after(problem, at);
      shared.load_tiles(1 - stage, maps, work, next, /*first=*/false);
      shared.load_stats(1 - stage, hbm.L_and_D, work.b, next);
    }

    // 1. S^T and dP^T are issued; P^T while dP^T is in flight.
    Accumulators<1, Shape::QUERY_FRAGMENTS> St, dPt;  // transposed: [16, Br] in each warp
    // Read after write: Q_i and L_i have landed, and with the first Q also K.
    wait_full(shared.full_Q[stage], parity);
    issue_scores(St, K_rows, Q);  // (8.11)
    // Read after write: dO_i and D_i have landed, and with the first dO also V.
    wait_full(shared.full_dO[stage], parity);
    issue_scores(dPt, V_rows, dO);  // (8.12)
    // Read after write: S^T is complete, dP^T may not be.
    wgmma_wait<1>(registers(St));
    mask_transposed(St, problem, at.query0, work.key0 + warp_row);
    recompute_P_log2(St, shared.stats(stage), problem.scale);
    auto& Pt = St;  // in the same registers

    // 2. dS^T, for all warps.
    // Read after write: dP^T is complete.
    wgmma_wait<0>(registers(dPt));
    const InRegisters<T, 1, Shape::Br / 16> Pt_reg(Pt);
    softmax_backward(dPt, Pt, shared.stats(stage));
    auto& dSt = dPt;
    const InRegisters<T, 1, Shape::Br / 16> dSt_reg(dSt);
    store_operand(dSt_smem.below(warp_row).left(), dSt_reg);

    // 3. dV += P^T dO, while other warps store dS^T; dQ = dS K; dK += dS^T Q, while dQ is added.
    issue_gradient(dV, Pt_reg, dO);  // (8.14)
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory
    // through the async proxy.
    fence_proxy_async();
    // Read after write: all warps have stored dS^T.
    __syncthreads();
    ShareOfDQ<Shape> dQ{index};
    dQ.issue(dSt_smem, shared.K);    // (8.16)
    issue_gradient(dK, dSt_reg, Q);  // (8.15)
    // Read after write: dV and dQ are complete, dK may not be.
    dQ.wait_with(dV);
    dQ.add(dQ_accum.head(work.b, at.h), at.query0);
    // Write after read: this warp's products have read the tiles.
    wgmma_wait<0>(registers(dK));
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  __syncthreads();
  dK.each([&](float& x, int) { x *= problem.scale; });
  write_rows(hbm.dV.head(work.b, work.kv_head), work.key0 + warp_row, dV, shared.V.below(warp_row));
  write_rows(hbm.dK.head(work.b, work.kv_head), work.key0 + warp_row, dK, shared.K.below(warp_row));
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Problem problem, const __grid_constant__ BackwardMaps maps,
                    BackwardTensors<T> hbm, Tensor<float> dQ_accum, int heads_at_once) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  const KeyWork<Shape> work(problem, heads_at_once, blockIdx.x);
  if (threadIdx.x == 0) {
    shared.initialize();
    shared.load_tiles(/*stage=*/0, maps, work, work.first(problem), /*first=*/true);
    shared.load_stats(/*stage=*/0, hbm.L_and_D, work.b, work.first(problem));
  }
  // Read after write: all threads see the initialised mbarriers.
  __syncthreads();
  consume<T>(shared, problem, maps, hbm, dQ_accum, work);
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardMaps maps = backward_maps<Shape>(a);
    // L times log2(e): an exponent of P^T is then one multiply-add.
    const BackwardTensors<T> hbm = prepare<T, Shape::Width, /*LInPowersOf2=*/true>(a, &dQ_accum);
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    // Only as many heads at once as it takes to give every SM a block, so that the blocks of a head
    // run together.
    launch("backward_warpgroups",
           {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, a.problem, maps, hbm, view<float>(dQ_accum),
           heads_in_a_wave(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

const Variant variant = hopper_backward_step<warpgroup_shapes<BackwardShape>>(
    "warpgroups", "the TMA copies, wgmma multiplies; keys are rows of scores");

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_1
