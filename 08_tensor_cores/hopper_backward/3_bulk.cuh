// 08 Tensor cores, Hopper backward, step 3: the TMA adds dQ to HBM, a whole tile at a time.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 2:
// - Another warp of the producer's warpgroup, the adder, handles dQ: consumers store their shares
//   to shared memory, and the adder asks the TMA to add the whole tile, 32 KB at d = 64 and 128, to
//   dQ_accum. Adding from registers takes one instruction per 16 bytes and lane, and occupies dQ's
//   registers until the last one is issued.
// - dQ has a ring too, in the opposite direction: consumers fill it, the adder empties it.
//
// Grid, HBM, workspace, shapes: as step 1.
// Block: as step 2, and an adder: a warp each for it and the producer.
#pragma once

#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/dQ_of_warpgroups.cuh"

namespace flash::tensor_cores::hopper_backward_3 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  // Of the rings of Q and dO; tiles of dS; of the ring of dQ.
  static constexpr int STAGES = 2, DS_STAGES = 2, DQ_STAGES = 2;
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 2 * 240 = 504, the same total as at launch, 3 * 168. With one
  // consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  template <class T>
  struct Shared : BackwardShared<T, Width, Br, Bc, STAGES, DS_STAGES> {
    alignas(128) float dQ[DQ_STAGES][Br * Width];  // in the layout of dQ_accum
    Mbarrier full_dQ[DQ_STAGES], empty_dQ[DQ_STAGES];
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && CONSUMERS <= 2 && Br % WARPGROUP_ROWS == 0 &&
                    Width % 16 == 0,
                "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(DS_STAGES == STAGES && DQ_STAGES == STAGES,
                "tiles of dS and dQ go by the stage of their Q and dO");
};

constexpr int CONSUMER_BARRIER = 1;  // a named barrier; 0 is that of __syncthreads()

/// The producer, one thread: tiles of queries, each as soon as its buffer is empty; K and V with
/// the first.
template <class T, class Shape>
__device__ void produce(Shared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                        const Tensor<const float>& L_and_D, const KeyWork<Shape>& work) {
  auto at = work.first(problem);
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(shared.empty[stage], parity);
    shared.load_tiles(stage, maps, work, at, /*first=*/iteration == 0);
    shared.load_stats(stage, L_and_D, work.b, at);
  }
}

/// A consumer warpgroup: its rows of a tile of K and V.
template <class T, class Shape>
__device__ void consume(Shared<T, Shape>& shared, const Problem& problem,
                        const BackwardTensors<T>& hbm, const KeyWork<Shape>& work) {
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  const int index = warpgroup();
  const auto K_rows = shared.K.below(index * WARPGROUP_ROWS),
             V_rows = shared.V.below(index * WARPGROUP_ROWS);
  // [16, Width] in each warp; dK without the scale.
  Accumulators<1, Shape::COL_FRAGMENTS> dK(0.0f), dV(0.0f);

  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    auto &Q = shared.Q[stage], &dO = shared.dO[stage];
    auto& dSt_smem = shared.dSt[stage];

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

    // 3. dV += P^T dO; dQ = dS K; dK += dS^T Q, while dQ goes to the adder.
    issue_gradient(dV, Pt_reg, dO);  // (8.14)
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory
    // through the async proxy.
    fence_proxy_async();
    // Read after write: all consumers have stored dS^T. Write after read: no warp still reads the
    // other tile of dS^T, which the next iteration stores.
    named_barrier_sync(CONSUMER_BARRIER, Shape::CONSUMER_THREADS);
    ShareOfDQ<Shape> dQ{index};
    dQ.issue(dSt_smem, shared.K);    // (8.16)
    issue_gradient(dK, dSt_reg, Q);  // (8.15)
    // Read after write: dV and dQ are complete, dK may not be.
    dQ.wait_with(dV);
    // Write after read: the TMA has read the dQ of two tiles ago.
    wait_empty(shared.empty_dQ[stage], parity);
    dQ.store(shared.dQ[stage]);
    // Read after write: this thread's dQ becomes visible to the TMA (async proxy).
    fence_proxy_async();
    commit(shared.full_dQ[stage]);
    // Write after read: this warp's products have read the tiles.
    wgmma_wait<0>(registers(dK));
    release(shared.empty[stage]);
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  named_barrier_sync(CONSUMER_BARRIER, Shape::CONSUMER_THREADS);
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
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dQ) init_for_warps(full, Shape::CONSUMERS * 4);
    for (Mbarrier& empty : shared.empty_dQ) mbarrier_init(empty, 1);  // one arrival, by the adder
    shared.initialize();
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role = threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: the producer; 1: the adder
    if (role > 1 || !elect_one()) return;
    if (role == 0) {
      produce<T>(shared, maps, problem, hbm.L_and_D, work);
    } else {
      add_dQ<T, Shape>(shared, problem, dQ_accum, work);
    }
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume<T>(shared, problem, hbm, work);
  }
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardMaps maps = backward_maps<Shape>(a);
    const BackwardTensors<T> hbm = prepare<T, Shape::Width, /*LInPowersOf2=*/true>(a, &dQ_accum);
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    launch("backward_bulk",
           {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, a.problem, maps, hbm, view<float>(dQ_accum),
           heads_in_a_wave(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

const Variant variant = hopper_backward_step<warpgroup_shapes<BackwardShape>>(
    "bulk", "an adder warp sends dQ, a tile at a time");

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_3
