// 08 Tensor cores, Hopper backward: the loop of general.cuh, options.cuh, ordered.cuh,
// ordered_softcap.cuh and divided.cuh, which say what they take and what it costs.
//
// New since steps 4 and 5, whose loop is the same: consume() has three parameters, so that a
// problem pays only for what it needs. Read them in this order:
//   parameter   in steps 4 and 5                else                          in
//   Rule        PlainRule: mask_transposed(),   ScoreRule: a bias, any scale  P_by_rule.cuh
//               recompute_P_log2()              OptionsRule: a window         score_rule.cuh
//                                               RaggedRule: sequences         ragged.cuh
//                                               Capped: a softcap, too. Its   SlopesInPanels
//                                               slopes multiply dS^T
//   Shape       one maker, DQOfOneMaker         DQOfTwoMakers, as in step 3;  here
//                                               more buffers of dQ
//   Out         GradientsOfBlock, to dK and     GradientsOfGroup, no look-up  turns.cuh
//               dV (kernel_by_rule.cuh)         PartialGradients, in fp32     divided.cuh
// kernel_by_rule.cuh calls it in step 5's kernel, turns.cuh in step 4's with turns.
#pragma once

#include "08_tensor_cores/hopper_backward/more/P_by_rule.cuh"
#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/dQ_of_warpgroups.cuh"

namespace flash::tensor_cores {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
/// DQStages: buffers of dQ, each with an adder. Makers: warpgroups that multiply dQ.
template <int Width_, int Br_, int Bc_, int DQStages = 1, int Makers = 1>
struct LoopShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  // Of the ring of Q and dO; tiles of dS; of the ring of dQ.
  static constexpr int STAGES = 2, DS_STAGES = 2, DQ_STAGES = DQStages, MAKERS = Makers;
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 256 + 224, since the maker holds P^T, dS^T and dQ together; two
  // makers 24 + 240 + 240: as many as 3 * 168 at launch. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, MAKER_REGISTERS = MAKERS == 1 ? 256 : 240,
                       RUNNER_REGISTERS = 480 - MAKER_REGISTERS;
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

/// The slopes of the softcap, in 16 bits, where the warp will store its rows of dS^T.
template <class Operand>
struct SlopesInPanels {
  using T = typename Operand::T;
  Operand rows;

  template <class Scores>
  __device__ void store(const Scores& slopes) const {
    store_operand(rows, InRegisters<T, 1, Scores::WIDTH / 16>(slopes));
    // Read after write: a lane reads what other lanes have stored.
    __syncwarp();
  }
  /// (9.2)  dS^T times the slopes.
  template <class Scores>
  __device__ void multiply_into(Scores& dSt) const {
#pragma unroll
    for (int k = 0; k < Scores::WIDTH / 16; ++k) {
      unsigned block[4];
      rows.load(block, 0, k);
      multiply_block<T>(dSt, 0, k, {block[0], block[1], block[2], block[3]});
    }
    // Write after read: all lanes have read, and dS^T is stored there next.
    __syncwarp();
  }
};

template <class Operand>
SlopesInPanels(Operand) -> SlopesInPanels<Operand>;  // clang 14 does not deduce it from aggregates

/// dQ of a tile of queries in one maker, as in step 4: the runner announces its dS^T and goes on.
template <class Shape>
struct DQOfOneMaker : WholeDQ<Shape> {
  static __device__ void announce(Mbarrier& full_dSt) { commit(full_dSt); }
  static __device__ void wait_for_dSt(Mbarrier& full_dSt, int parity) {
    wait_full(full_dSt, parity);
  }
};
/// In two, as in step 3: both wait for each other's dS^T, and a named barrier costs less than an
/// mbarrier. (1 and 2 belong to the warpgroups.)
template <class Shape>
struct DQOfTwoMakers : ShareOfDQ<Shape> {
  static __device__ void announce(Mbarrier&) {}
  static __device__ void wait_for_dSt(Mbarrier&, int) {
    named_barrier_sync(3, Shape::CONSUMER_THREADS);
  }
};
template <class Shape>
using DQ = std::conditional_t<Shape::MAKERS == 1, DQOfOneMaker<Shape>, DQOfTwoMakers<Shape>>;

/// Consumer warpgroup `Index`: its rows of a tile of K and V. Compiled separately for the maker and
/// the runner: ptxas serialises products that are in flight across a branch. `out` takes dK and dV.
template <int Index, class T, class Shape, class Rule, class Work, class Out>
__device__ void consume(Shared<T, Shape>& shared, const Rule& rule, const BackwardTensors<T>& hbm,
                        const Work& work, const Out& out) {
  const auto& problem = rule.problem;
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  constexpr bool MAKES_DQ = Index < Shape::MAKERS;
  const auto K_rows = shared.K.below(Index * WARPGROUP_ROWS),
             V_rows = shared.V.below(Index * WARPGROUP_ROWS);
  // [16, Width] in each warp; dK without the scale.
  Accumulators<1, Shape::COL_FRAGMENTS> dK(0.0f), dV(0.0f);

  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    auto &Q = shared.Q[stage], &dO = shared.dO[stage];
    auto& dSt_smem = shared.dSt[stage];
    // opaque(): no register keeps the addresses from one tile to the next.
    const auto dSt_rows = dSt_smem.below(opaque(warp_row)).left();  // the warp's

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
    // Write after read: dS^T of two tiles before was released with this stage of Q.
    const SlopesInPanels slopes{dSt_rows};
    const auto stats = shared.template stats<L_IN_POWERS_OF_2<Rule>>(stage);
    recompute_P_by_rule(rule, St, stats, work.b * problem.H + at.h, at.query0, work.key0 + warp_row,
                        slopes);
    auto& Pt = St;  // in the same registers

    // 2. dS^T, for the maker.
    // Read after write: dP^T is complete.
    wgmma_wait<0>(registers(dPt));
    const InRegisters<T, 1, Shape::Br / 16> Pt_reg(Pt);
    softmax_backward(dPt, Pt, stats);
    auto& dSt = dPt;
    if (is_capped(rule)) slopes.multiply_into(dSt);
    const InRegisters<T, 1, Shape::Br / 16> dSt_reg(dSt);
    store_operand(dSt_rows, dSt_reg);
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory
    // through the async proxy.
    fence_proxy_async();
    DQ<Shape>::announce(shared.full_dSt[stage]);

    // 3. dV += P^T dO; a maker: dQ = dS K; dK += dS^T Q, while dQ goes to the adder.
    issue_gradient(dV, Pt_reg, dO);  // (8.14)
    DQ<Shape> dQ;                    // in the runner unused
    if constexpr (MAKES_DQ) {
      // Read after write: both warpgroups have stored dS^T.
      dQ.wait_for_dSt(shared.full_dSt[stage], parity);
      dQ.issue(dSt_smem, shared.K);  // (8.16)
    }
    issue_gradient(dK, dSt_reg, Q);  // (8.15)
    if constexpr (MAKES_DQ) {
      // Read after write: dV and dQ are complete, dK may not be.
      dQ.wait_with(dV);
      const int dQ_stage = iteration % Shape::DQ_STAGES;
      // Write after read: the TMA has read the dQ that was there.
      wait_empty(shared.empty_dQ[dQ_stage], iteration / Shape::DQ_STAGES % 2);
      dQ.store(shared.dQ[dQ_stage]);
      // Read after write: this thread's dQ becomes visible to the TMA (async proxy).
      fence_proxy_async();
      commit(shared.full_dQ[dQ_stage]);
    }
    // Write after read: this warp's products have read the tiles, dS^T included.
    wgmma_wait<0>(registers(dV), registers(dK));
    release(shared.empty[stage]);
  }
  // Write after read: the gradients are staged in the warp's rows of V, which the warpgroup has
  // finished reading.
  named_barrier_sync(1 + Index, WARPGROUP);
  dK.each([&](float& x, int) { x *= problem.scale; });
  const auto staging = shared.V.below(opaque(threadIdx.x) / WARP * 16);
  out.write(rule, hbm, work, staging, dK, dV);
}

}  // namespace
}  // namespace flash::tensor_cores
