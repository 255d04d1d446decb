// 08 Tensor cores, Hopper backward, step 5: blocks and kernels request early what they begin with.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 4, `lead`, where a block of 16 tiles waits a tenth of its time at both ends: the
// loop stays as it is, and what it begins with is requested early.
// - A block requests its first tiles before the block-wide barrier.
// - The producer ends by prefetching to L2 the K and V of the block that probably runs next on its
//   SM.
// - This kernel begins while prepare_kernel ends, and convert_kernel while this one ends (CUDA:
//   programmatic dependent launch). A block waits for what the previous one writes when its inputs
//   are on their way.
//
// Grid, HBM, workspace, shapes: as step 1. Block: as step 4.
#pragma once

#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/dQ_of_warpgroups.cuh"

namespace flash::tensor_cores::hopper_backward_5 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  // Of the ring of Q and dO; tiles of dS; of the ring of dQ.
  static constexpr int STAGES = 2, DS_STAGES = 2, DQ_STAGES = 1;
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread: 24 + 240 + 240, at Width 128, where the maker holds P^T, dS^T and dQ
  // together, 24 + 256 + 224: as many as 3 * 168 at launch. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, MAKER_REGISTERS = Width == 128 ? 256 : 240,
                       RUNNER_REGISTERS = Width == 128 ? 224 : 240;
  template <class T>
  struct Shared : BackwardShared<T, Width, Br, Bc, STAGES, DS_STAGES> {
    alignas(128) float dQ[DQ_STAGES][Br * Width];  // in the layout of dQ_accum
    Mbarrier full_dSt[DS_STAGES], full_dQ[DQ_STAGES], empty_dQ[DQ_STAGES];
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && CONSUMERS <= 2 && Br % WARPGROUP_ROWS == 0 &&
                    Width % 16 == 0,
                "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS,
                                  PRODUCER_REGISTERS + MAKER_REGISTERS + RUNNER_REGISTERS));
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(DS_STAGES == STAGES, "tiles of dS go by the stage of their Q and dO");
};

/// One thread: K and V of a block's work, to L2.
template <class Shape>
__device__ void prefetch(const BackwardMaps& maps, const KeyWork<Shape>& work) {
#pragma unroll
  for (int col = 0; col < Shape::Width; col += PANEL) {
    tma_prefetch(maps.K, col, work.key0, work.kv_head, work.b);
    tma_prefetch(maps.V, col, work.key0, work.kv_head, work.b);
  }
}

/// The producer, one thread: tiles of queries, each as soon as its buffer is empty. The first ones,
/// and K and V, are on their way already.
template <class T, class Shape>
__device__ void produce(Shared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                        const Tensor<const float>& L_and_D, const KeyWork<Shape>& work) {
  auto at = work.after(problem, work.first(problem));
  for (int iteration = 1; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(shared.empty[stage], parity);
    shared.load_tiles(stage, maps, work, at, /*first=*/false);
    shared.load_stats(stage, L_and_D, work.b, at);
  }
}

/// A consumer warpgroup: its rows of a tile of K and V. Compiled separately for the maker and the
/// runner: ptxas serialises products that are in flight across a branch.
template <bool MakesDQ, class T, class Shape>
__device__ void consume(Shared<T, Shape>& shared, const Problem& problem,
                        const BackwardTensors<T>& hbm, const KeyWork<Shape>& work,
                        int heads_at_once) {
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  constexpr int index = MakesDQ ? 0 : 1;
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

    // 2. dS^T, for the maker.
    // Read after write: dP^T is complete.
    wgmma_wait<0>(registers(dPt));
    const InRegisters<T, 1, Shape::Br / 16> Pt_reg(Pt);
    softmax_backward(dPt, Pt, shared.stats(stage));
    auto& dSt = dPt;
    const InRegisters<T, 1, Shape::Br / 16> dSt_reg(dSt);
    // Write after read: dS^T of two tiles before was released with this stage of Q.
    store_operand(dSt_smem.below(warp_row).left(), dSt_reg);
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory
    // through the async proxy.
    fence_proxy_async();
    commit(shared.full_dSt[stage]);

    // 3. dV += P^T dO; the maker: dQ = dS K; dK += dS^T Q, while dQ goes to the adder.
    issue_gradient(dV, Pt_reg, dO);  // (8.14)
    WholeDQ<Shape> dQ;               // in the runner unused
    if constexpr (MakesDQ) {
      // Read after write: both warpgroups have stored dS^T.
      wait_full(shared.full_dSt[stage], parity);
      dQ.issue(dSt_smem, shared.K);  // (8.16)
    }
    issue_gradient(dK, dSt_reg, Q);  // (8.15)
    if constexpr (MakesDQ) {
      // Read after write: dV and dQ are complete, dK may not be.
      dQ.wait_with(dV);
      // Write after read: the TMA has read the previous dQ.
      wait_empty(shared.empty_dQ[0], iteration % 2);
      dQ.store(shared.dQ[0]);
      // Read after write: this thread's dQ becomes visible to the TMA (async proxy).
      fence_proxy_async();
      commit(shared.full_dQ[0]);
    }
    // Write after read: this warp's products have read the tiles, dS^T included.
    wgmma_wait<0>(registers(dV), registers(dK));
    release(shared.empty[stage]);
  }
  // Write after read: the gradients are staged in the warp's rows of V, which the warpgroup has
  // finished reading.
  named_barrier_sync(1 + index, WARPGROUP);
  dK.each([&](float& x, int) { x *= problem.scale; });
  // `work` once more, at the end, so that no register keeps it through the loop.
  const KeyWork<Shape> end(problem, heads_at_once, opaque(blockIdx.x));
  write_rows(hbm.dV.head(end.b, end.kv_head), end.key0 + warp_row, dV, shared.V.below(warp_row));
  write_rows(hbm.dK.head(end.b, end.kv_head), end.key0 + warp_row, dK, shared.V.below(warp_row));
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Problem problem, const __grid_constant__ BackwardMaps maps,
                    BackwardTensors<T> hbm, Tensor<float> dQ_accum, int heads_at_once,
                    int blocks_at_once) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  griddepcontrol_launch_dependents();
  const KeyWork<Shape> work(problem, heads_at_once, blockIdx.x);
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dSt) init_for_warps(full, Shape::CONSUMERS * 4);
    init_for_warps(shared.full_dQ[0], 4);
    mbarrier_init(shared.empty_dQ[0], 1);  // one arrival, by the adder
    shared.initialize();
    // Inputs, which prepare_kernel does not write.
    shared.load_tiles(/*stage=*/0, maps, work, work.first(problem), /*first=*/true);
    // Read after write: L and D of prepare_kernel are visible to this grid, the TMA included.
    // Write after write: it has cleared dQ_accum.
    griddepcontrol_wait();
    shared.load_stats(/*stage=*/0, hbm.L_and_D, work.b, work.first(problem));
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
      const int next_block = static_cast<int>(blockIdx.x) + blocks_at_once;
      if (next_block < static_cast<int>(gridDim.x))
        prefetch(maps, KeyWork<Shape>(problem, heads_at_once, next_block));
    } else {
      add_dQ<T, Shape>(shared, problem, dQ_accum, work);
    }
  } else if (warpgroup() == 0) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::MAKER_REGISTERS>();
    consume</*MakesDQ=*/true, T>(shared, problem, hbm, work, heads_at_once);
  } else if constexpr (Shape::CONSUMERS > 1) {
    setmaxnreg_inc<Shape::RUNNER_REGISTERS>();
    consume</*MakesDQ=*/false, T>(shared, problem, hbm, work, heads_at_once);
  }
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardMaps maps = backward_maps<Shape>(a);
    const BackwardTensors<T> hbm =
        prepare<T, Shape::Width, /*LInPowersOf2=*/true, /*NextIsEarly=*/true>(a, &dQ_accum);
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    launch("backward_early",
           {.grid = dim3(static_cast<unsigned>(blocks)),
            .block = dim3(Shape::THREADS),
            .shared_bytes = Shape::SHARED_ELEMENTS * sizeof(T),
            .early = true},
           backward_kernel<T, Shape>, a.problem, maps, hbm, view<float>(dQ_accum),
           heads_in_a_wave(a, tiles), a.limits.multiprocessors);
    convert<T, Shape::Width, /*Early=*/true>(a, dQ_accum);
  });
}

const Variant variant = hopper_backward_step<warpgroup_shapes<BackwardShape>>(
    "early", "the first tiles are requested early", is_fastest<BackwardKernel::early>);

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_5
