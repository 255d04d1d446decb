// 08 Tensor cores, Hopper backward: the kernel of general.cuh and options.cuh, which say what they
// take and what it costs, and the loop of turns.cuh.
//
// New since step 4, `lead`: three parameters, so that a problem pays for its own needs alone.
// - Rule: how products become scores, P and dS. PlainRule as in step 4, others in general.cuh and
//   options.cuh.
// - Shape (lead_parts.cuh): one maker as in step 4, or two, each with a ShareOfDQ as in step 3; and
//   buffers of dQ. turns.cuh needs both.
// - Out: where dK and dV go. InTensors as in step 4, others in ordered.cuh and divided.cuh.
// For the same bits in each run the host launches backward_kernel `launches` times, each time for
// every launches-th tile of keys, so that in one launch a row of dQ gets one addition.
#pragma once

#include "08_tensor_cores/hopper_backward/more/lead_parts.cuh"
#include "08_tensor_cores/parts/share_of_dQ.cuh"
#include "08_tensor_cores/parts/whole_dQ.cuh"

namespace flash::tensor_cores {
namespace {

/// dQ of a tile of queries, in one maker, or in two that share it.
template <class Shape>
using DQ = std::conditional_t<Shape::MAKERS == 1, WholeDQ<Shape>, ShareOfDQ<Shape>>;

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
    // From iteration, as in step 1: no register keeps a PipelineState.
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
    recompute_P_by_rule(rule, St, shared.template stats<L_IN_POWERS_OF_2<Rule>>(stage),
                        work.b * problem.H + at.h, at.query0, work.key0 + warp_row, slopes);
    auto& Pt = St;  // in the same registers

    // 2. dS^T, for the maker.
    // Read after write: dP^T is complete.
    wgmma_wait<0>(registers(dPt));
    const InRegisters<T, 1, Shape::Br / 16> Pt_reg(Pt);
    softmax_backward(dPt, Pt, shared.stats(stage));
    auto& dSt = dPt;
    if constexpr (Rule::OPTIONS) {
      if (problem.softcap != 0.0f) slopes.multiply_into(dSt);
    }
    const InRegisters<T, 1, Shape::Br / 16> dSt_reg(dSt);
    // Write after read: of the slopes, which each lane has read where it stores. ldmatrix and
    // stmatrix take all lanes together.
    store_operand(dSt_rows, dSt_reg);
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory
    // through the async proxy.
    fence_proxy_async();
    if constexpr (Shape::MAKERS == 1) commit(shared.full_dSt[stage]);

    // 3. dV += P^T dO; a maker: dQ = dS K; dK += dS^T Q, while dQ goes to the adder.
    issue_gradient(dV, Pt_reg, dO);  // (8.14)
    DQ<Shape> dQ;                    // in the runner unused
    if constexpr (MAKES_DQ) {
      // Read after write: both warpgroups have stored dS^T. Two makers both wait, and a named
      // barrier costs less than an mbarrier. (1 and 2 belong to the warpgroups.)
      if constexpr (Shape::MAKERS == 1) wait_full(shared.full_dSt[stage], parity);
      if constexpr (Shape::MAKERS == 2) named_barrier_sync(3, Shape::CONSUMER_THREADS);
      dQ.issue(dSt_smem, shared.K);  // (8.16)
    }
    issue_gradient(dK, dSt_reg, Q);  // (8.15)
    if constexpr (MAKES_DQ) {
      // Read after write: dV and dQ are complete; its first product may also be its last.
      if constexpr (Shape::MAKERS == 1)
        wgmma_wait<1>(registers(dV), registers(dQ.acc[0]), registers(dQ.acc[dQ.PRODUCTS - 1]));
      if constexpr (Shape::MAKERS == 2) wgmma_wait<1>(registers(dV), registers(dQ.acc));
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

/// Where `general` and `options_lead` leave dK and dV: in their tensors, whose head is looked up
/// again, as no register keeps it.
struct InTensors {
  int heads_at_once;

  template <class Rule, class T, class Work, class Staging, class Gradient>
  __device__ void write(const Rule& rule, const BackwardTensors<T>& hbm, const Work& work,
                        const Staging& staging, const Gradient& dK, const Gradient& dV) const {
    const int head = order_of_block(rule.problem, heads_at_once).head,
              row0 = work.key0 + staging.row0;
    write_rows(keys_of(rule, hbm.dV).head(head), row0, dV, staging);
    write_rows(keys_of(rule, hbm.dK).head(head), row0, dK, staging);
  }
};

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Rule rule, const __grid_constant__ BackwardMaps maps, BackwardTensors<T> hbm,
                    Tensor<float> dQ_accum, int heads_at_once, int launch_index, int launches) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  const auto work = work_of_block<Shape>(rule, heads_at_once);
  if (work.key0 / Shape::Bc % launches != launch_index) return;  // another launch's
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dSt) init_for_warps(full, Shape::CONSUMERS * 4);
    init_for_warps(shared.full_dQ[0], 4);
    mbarrier_init(shared.empty_dQ[0], 1);  // one arrival, by the adder
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
      produce_sequence<T, Shape>(shared, maps, rule, hbm.L_and_D, work);
    } else {
      add_dQ_of_sequence<T, Shape>(shared, rule, dQ_accum, work);
    }
  } else if (warpgroup() == 0) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::MAKER_REGISTERS>();
    consume</*Index=*/0, T, Shape>(shared, rule, hbm, work, InTensors{heads_at_once});
  } else if constexpr (Shape::CONSUMERS > 1) {
    setmaxnreg_inc<Shape::RUNNER_REGISTERS>();
    consume</*Index=*/1, T, Shape>(shared, rule, hbm, work, InTensors{heads_at_once});
  }
}

/// tiles: of keys, of a head or of all sequences.
template <class Shape, class Rule>
void start_with(const Rule& rule, const Attention& a, int tiles, const char* name) {
  in_type_of(a, [&]<class T>(T) {
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    BackwardTensors<T> hbm;
    if constexpr (Rule::RAGGED) {
      hbm = prepare_ragged<T, Shape::Width>(a, dQ_accum, rule);
    } else {
      hbm = prepare<T, Shape::Width>(a, &dQ_accum);
    }
    for (int index = 0; index < a.launches; ++index) {
      launch(name,
             {dim3(static_cast<unsigned>(tiles * a.problem.B * a.problem.Hkv)),
              dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
             backward_kernel<T, Shape, Rule>, rule, backward_maps<Shape>(a), hbm,
             view<float>(dQ_accum), heads_in_a_wave(a, tiles), index, a.launches);
    }
    if constexpr (Rule::RAGGED) {
      convert_ragged<T, Shape::Width>(a, dQ_accum, rule);
    } else {
      convert<T, Shape::Width>(a, dQ_accum);
    }
  });
}

}  // namespace
}  // namespace flash::tensor_cores
