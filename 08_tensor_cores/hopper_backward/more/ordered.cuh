// 08 Tensor cores, Hopper backward, deterministic dQ, by blocks that take turns.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T + bias - L_i), masked         [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 3, `bulk`, where blocks add to dQ in any order, and rounding differs from run to
// run: blocks take turns.
// - Blocks add to a tile of dQ in the order of their keys, each once its predecessor signals that
//   its addition is complete. Only adders wait, as long as dQ's ring has room. Completion takes
//   longer than the read by the TMA, so two adders alternate.
// - The block of the first keys stores instead of adding, so that only queries without a visible
//   key need a cleared dQ_accum.
// - OrderedWork of turns.cuh orders tiles of queries so that adders wait little.
// - A block draws a ticket, which says what tile of keys, of which head, is its work. It waits only
//   for smaller tickets, whose blocks run already.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head. Block:
//   consumer warpgroups, each of which owns 64 keys; then the producer and two adders, a warp each.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see; dQ_accum written once per tile of
//   K, read once per tile but the first, and once at the end; dQ, dK, dV once.
// Workspace: L and D; dQ_accum; the counter and the turns, zero before and after. Launches that run
//   at the same time must not share it: with mixed tickets an adder might wait for ever.
// Shapes: d up to 128, padded with zeros to 32, 64, 96 or 128. Needs sm_90a.
#pragma once

#include "08_tensor_cores/hopper_backward/more/turns.cuh"

namespace flash::tensor_cores::hopper_backward_more_ordered {
namespace {

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, const __grid_constant__ BackwardMaps maps,
                    BackwardTensors<T> all, Tensor<float> dQ_accum, Tensor<int> counter,
                    Tensor<int> turns, int heads_at_once) {
  if constexpr (!COMPILED_WITH_WGMMA)
    return __trap();  // no wgmma on this architecture: never launched
  auto& shared = shared_of_block<T, Shape>();
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dQ) init_for_warps(full, Shape::CONSUMERS * 4);
    for (Mbarrier& empty : shared.empty_dQ) mbarrier_init(empty, 1);  // one arrival, by the adder
    shared.initialize();
    const auto next_ticket = counter.head(0, 0).address(0, 0);
    const int end = static_cast<int>(gridDim.x);
    shared.ticket = atomicAdd(next_ticket, 1);
    if (shared.ticket == end - 1)
      atomicSub(next_ticket, end);  // the last of all: reset for the next launch
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers. Read after write: all threads see the ticket.
  __syncthreads();
  const int work_id = __shfl_sync(ALL_LANES, shared.ticket, 0);
  const OrderedWork<Shape> work(rule.problem, heads_at_once, work_id);

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role =
        threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: the producer; 1, 2: the adders
    if (role > 2 || !elect_one()) return;
    if (role == 0) {
      produce<T, Shape>(shared, maps, rule.problem, all.L_and_D, work);
    } else {
      add_dQ<T>(shared, rule.problem, dQ_accum, turns, work, role - 1);
    }
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume<T>(shared, rule, all, work);
  }
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardMaps maps = backward_maps<Shape>(a);
    // No block stores dQ of queries that see no key: clear it here.
    const BackwardTensors<T> all =
        prepare<T, Shape::Width>(a, p.causal && p.Nq > p.Nk ? &dQ_accum : nullptr);
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    launch("backward_ordered",
           {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, score_rule(a), maps, all, view<float>(dQ_accum),
           view<int>(a.workspace("counter")), view<int>(a.workspace("turns")),
           heads_in_turns<Shape>(a, p, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<BackwardShape<Sizes...>>(why, start<BackwardShape<Sizes...>>, speed);
}

// Width, Br, Bc.
constexpr CompiledShape shapes[] = {
    compiled<32, 128, 128>("64 queries of dQ for each of two warpgroups"),
    compiled<32, 64, 64>("twice as many blocks, little shared memory", 0.65),
    compiled<64, 128, 128>("64 queries of dQ for each of two warpgroups"),
    compiled<64, 64, 64>("twice as many blocks, little shared memory", 0.65),
    compiled<96, 64, 128>("two warpgroups share Q and dO"),
    compiled<96, 64, 64>("twice as many blocks, little shared memory", 0.65),
    compiled<128, 64, 128>("64 columns of dQ for each of two warpgroups"),
    compiled<128, 64, 64>("twice as many blocks, little shared memory", 0.65),
};

const Variant variant = [] {
  Variant step = general_hopper_backward_step<shapes>(
      "ordered", "blocks take turns at dQ: the same bits in each run",
      [](const FullProblem& p, Pass pass) {
        return pass == Pass::backward && which_backward(p) == "ordered";
      });
  step.workspace = workspace_of_turns;
  step.atomic_dQ = false;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_ordered
