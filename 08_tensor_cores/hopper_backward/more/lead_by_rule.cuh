// 08 Tensor cores, Hopper backward: step 4, `lead`, by a rule of the scores: the consumers of
// turns.cuh, and the kernel of general.cuh and options.cuh, which choose the rule. For a
// deterministic pass it is launched `turns` times, each time for every turns-th tile of keys, so
// that in one launch a row of dQ gets one addition.
#pragma once

#include "08_tensor_cores/hopper_backward/more/lead_parts.cuh"
#include "08_tensor_cores/parts/share_of_dQ.cuh"
#include "08_tensor_cores/parts/whole_dQ.cuh"

namespace flash::tensor_cores {
namespace {

/// One thread: adds tiles of dQ to dQ_accum, each as soon as the maker has stored it.
template <class T, class Shape, class Rule, class Work>
__device__ void add_dQ(Shared<T, Shape>& shared, const Rule& rule, const Tensor<float>& dQ_accum,
                       const Work& work) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  auto at = work.first(rule.problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(rule.problem, at)) {
    // Read after write: dQ_i is complete.
    wait_full(shared.full_dQ[0], iteration % 2);
    const auto target =
        dQ_accum.head(work.b, at.h).address(0, row_of(rule, at.query0) * Shape::Width);
    bulk_reduce_add(target, shared.dQ[0], BYTES);
    bulk_commit();
    // Write after read: the TMA has read dQ_i, whose buffer the maker fills next.
    bulk_wait_read<0>();
    mbarrier_arrive(shared.empty_dQ[0]);
  }
}

/// One of two makers: its 64 columns of dQ.
template <class Shape>
struct HalfOfDQ {
  static constexpr int PARTS = 1;
  ShareOfDQ<Shape> share;
  Accumulators<1, ShareOfDQ<Shape>::COLS / 8> parts[PARTS];  // [16, 64] in each warp

  template <class T, class StTile, class KTile>
  __device__ void issue(StTile& dSt, KTile& K) {
    share.template issue<T>(parts[0], dSt, K);
  }
  __device__ void store(float (&tile)[Shape::Br * Shape::Width]) const {
    share.store(tile, parts[0]);
  }
};
template <class Shape>
using DQ = std::conditional_t<Shape::MAKERS == 1, WholeDQ<Shape>, HalfOfDQ<Shape>>;

/// Consumer warpgroup `Index`: its rows of a tile of K and V. Compiled separately for the maker and
/// the runner: ptxas serialises products that are in flight across a branch. `out` takes dK and dV.
template <int Index, class T, class Shape, class Rule, class Work, class Out>
__device__ void consume(Shared<T, Shape>& shared, const Rule& rule, const BackwardTensors<T>& all,
                        const Work& work, const Out& out) {
  const auto& problem = rule.problem;
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  constexpr bool MAKES_DQ = Index < Shape::MAKERS;
  const auto K_rows = shared.K.below(Index * WARPGROUP_ROWS),
             V_rows = shared.V.below(Index * WARPGROUP_ROWS);
  // [16, Width] in each warp; dK without the scale.
  Accumulators<1, Shape::COL_FRAGMENTS> dK(0.0f), dV(0.0f);

  if (work.iterations > 0) {
    // Read after write: K and V have landed.
    wait_full(shared.full_K, 0);
    wait_full(shared.full_V, 0);
  }
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES,
              parity = iteration / Shape::STAGES % 2;  // from iteration: no register for a state
    auto &Q = shared.Q[stage], &dO = shared.dO[stage];
    auto& dSt_smem = shared.dSt[stage];
    // opaque(): no register keeps the addresses from one tile to the next.
    const auto dSt_rows = dSt_smem.below(opaque(warp_row)).left();  // the warp's

    // 1. S^T and dP^T are issued; P^T while dP^T is in flight.
    Accumulators<1, Shape::QUERY_FRAGMENTS> St, dPt;  // transposed: [16, Br] in each warp
    // Read after write: Q_i and L_i have landed.
    wait_full(shared.full_Q[stage], parity);
    // Write after read: P^T of the previous tile, in the same registers, has been packed.
    wgmma_fence();
    issue_product<T, K_rows.DEPTH>(St, K_rows.k_major(), Q.k_major(), /*add=*/false);  // (8.11)
    wgmma_commit();
    // Read after write: dO_i and D_i have landed.
    wait_full(shared.full_dO[stage], parity);
    // Write after read: dS^T of the previous tile, in the same registers, has been packed.
    wgmma_fence();
    issue_product<T, V_rows.DEPTH>(dPt, V_rows.k_major(), dO.k_major(), /*add=*/false);  // (8.12)
    wgmma_commit();
    // Read after write: S^T is complete, dP^T may not be.
    wgmma_wait<1>(registers(St));
    // Write after read: dS^T of two tiles before was released with this stage of Q.
    const SlopesInPanels slopes{dSt_rows};
    weigh(rule, St, shared.stats(stage), work.b * problem.H + at.h, at.query0, work.key0 + warp_row,
          slopes);
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
    // Read after write: P^T has been packed.
    wgmma_fence();
    issue_product<T, Shape::Br / 16>(dV, Pt_reg, dO.mn_major(), /*add=*/true);  // (8.14)
    wgmma_commit();
    DQ<Shape> dQ;  // in the runner unused
    if constexpr (Shape::MAKERS == 2) {
      // Read after write: both warpgroups have stored dS^T. Both wait here, and a named barrier
      // costs less than an mbarrier. (1 and 2 belong to the warpgroups.)
      named_barrier_sync(3, Shape::CONSUMER_THREADS);
      // Write after read: the previous dQ, in the same registers, has been stored.
      wgmma_fence();
      dQ.template issue<T>(dSt_smem, shared.K);
      wgmma_commit();
    } else if constexpr (MAKES_DQ) {
      issue_dQ<T, Shape>(shared, dQ, stage, parity);
    }
    // Read after write: dS^T has been packed.
    wgmma_fence();
    issue_product<T, Shape::Br / 16>(dK, dSt_reg, Q.mn_major(), /*add=*/true);  // (8.15)
    wgmma_commit();
    if constexpr (MAKES_DQ) {
      // Read after write: dV and dQ are complete; its first part may also be its last.
      wgmma_wait<1>(registers(dV), registers(dQ.parts[0]), registers(dQ.parts[dQ.PARTS - 1]));
      const int dQ_stage = iteration % Shape::DQ_STAGES;
      pass_on_dQ(dQ, shared.dQ[dQ_stage], shared.full_dQ[dQ_stage], shared.empty_dQ[dQ_stage],
                 iteration / Shape::DQ_STAGES % 2);
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
  out.write(rule, all, work, staging, dK, dV);
}

/// Where a block leaves dK and dV: in their tensors.
struct InTensors {
  int heads_at_once;

  template <class Rule, class T, class Work, class Staging, class Gradient>
  __device__ void write(const Rule& rule, const BackwardTensors<T>& all, const Work& work,
                        const Staging& staging, const Gradient& dK, const Gradient& dV) const {
    const int head = order_of_block(rule.problem, heads_at_once).head,
              row0 = work.key0 + staging.row0;
    write_rows(keys_of(rule, all.dV).head(head), row0, dV, staging);
    write_rows(keys_of(rule, all.dK).head(head), row0, dK, staging);
  }
};

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Rule rule, const __grid_constant__ BackwardMaps maps, BackwardTensors<T> all,
                    Tensor<float> dQ_accum, int heads_at_once, int turn, int turns) {
  if constexpr (!COMPILED_WITH_WGMMA)
    return __trap();  // no wgmma on this architecture: never launched
  auto& shared = shared_of_block<T, Shape>();
  const auto work = work_of_block<Shape>(rule, heads_at_once);
  if (work.key0 / Shape::Bc % turns != turn) return;  // another launch's
  if (threadIdx.x == 0) shared.initialize();
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role = threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: the producer; 1: the adder
    if (role > 1 || !elect_one()) return;
    if (role == 0) {
      produce_by_rule<T, Shape>(shared, maps, rule, all.L_and_D, work);
    } else {
      add_dQ<T, Shape>(shared, rule, dQ_accum, work);
    }
  } else if (warpgroup() == 0) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::MAKER_REGISTERS>();
    consume</*Index=*/0, T, Shape>(shared, rule, all, work, InTensors{heads_at_once});
  } else if constexpr (Shape::CONSUMERS > 1) {
    setmaxnreg_inc<Shape::RUNNER_REGISTERS>();
    consume</*Index=*/1, T, Shape>(shared, rule, all, work, InTensors{heads_at_once});
  }
}

/// tiles: of keys, of a head or of all sequences.
template <class Shape, class Rule>
void start_with(const Rule& rule, const Attention& a, int tiles, const char* name) {
  in_type_of(a, [&]<class T>(T) {
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    BackwardTensors<T> all;
    if constexpr (Rule::RAGGED) {
      all = prepare_ragged<T, Shape::Width>(a, dQ_accum, rule);
    } else {
      all = prepare<T, Shape::Width>(a, &dQ_accum);
    }
    for (int turn = 0; turn < a.turns; ++turn) {
      launch(name,
             {dim3(static_cast<unsigned>(tiles * a.problem.B * a.problem.Hkv)),
              dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
             backward_kernel<T, Shape, Rule>, rule, backward_maps<Shape>(a), all,
             view<float>(dQ_accum), heads_in_a_wave(a, tiles), turn, a.turns);
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
