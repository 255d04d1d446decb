// 08 Tensor cores, Hopper backward, step 2: one thread loads, whole warpgroups compute.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 1, with the same tiles and order of products:
// - Warp specialisation: the producer, one thread of an additional warpgroup, loads tile after tile
//   into rings. It waits for "empty", the consumers wait for "full" (Hopper forward, step 3).
// - setmaxnreg moves the producer's registers to the consumers, which need more than the 168 that
//   each thread gets at launch.
// - Two tiles of dS: a warpgroup stores one while the other warpgroup still reads the previous one
//   for dQ. This leaves one barrier in the loop.
//
// Grid, HBM, workspace, shapes: as step 1.
// Block: consumer warpgroups, each of which owns 64 keys; then the producer.
#pragma once

#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/dQ_of_warpgroups.cuh"

namespace flash::tensor_cores::hopper_backward_2 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  static constexpr int STAGES = 2, DS_STAGES = 2;  // of the rings of Q and dO; tiles of dS
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 2 * 240 = 504, the same total as at launch, 3 * 168. With one
  // consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  template <class T>
  using Shared = BackwardShared<T, Width, Br, Bc, STAGES, DS_STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && CONSUMERS <= 2 && Br % WARPGROUP_ROWS == 0 &&
                    Width % 16 == 0,
                "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(DS_STAGES == STAGES, "a tile of dS goes by the stage of its Q and dO");
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

    // 3. dV += P^T dO; dQ = dS K; dK += dS^T Q, while dQ is added to dQ_accum.
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
    dQ.add(dQ_accum.head(work.b, at.h), at.query0);
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
  if (threadIdx.x == 0) shared.initialize();
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    if (threadIdx.x / WARP != 4 * Shape::CONSUMERS || !elect_one())
      return;  // one thread of the first warp goes on
    produce<T>(shared, maps, problem, hbm.L_and_D, work);
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume<T>(shared, problem, hbm, dQ_accum, work);
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
    launch("backward_ring",
           {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, a.problem, maps, hbm, view<float>(dQ_accum),
           heads_in_a_wave(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

const Variant variant = hopper_backward_step<warpgroup_shapes<BackwardShape>>(
    "ring", "a producer warp fills rings of Q and dO, consumers get its registers");

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_2
