// 08 Tensor cores, Hopper backward, for few blocks: blocks share a group of heads where whole
// groups make too few blocks.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T + bias - L_i), masked         [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since more/ordered.cuh: a block loops over a part of the query heads that share its key/value
// head, a *subgroup*.
// - Short sequences with few key/value heads make fewer tiles of keys than there are SMs. With n
//   subgroups per group there are n times as many blocks.
// - For the kernel a subgroup is a group: the host passes it a problem with n times as many
//   key/value heads (divided()). The kernel differs in two places: which K and V a block loads, and
//   where its dK and dV go.
// - dK and dV of a subgroup are partial sums. Blocks write them in fp32, and sum_parts_kernel adds
//   them up in a fixed order.
// - n comes from an estimate that depends on the problem alone (subgroups.cuh), as the workspace
//   does.
//
// Grid: Tc*B*Hkv*n, where a block loops over the query heads of its subgroup. Block: consumer
//   warpgroups, each of which owns 64 keys; then the producer and two adders, a warp each.
// HBM: K, V n times; Q, dO, L, D once per tile of K that they see; dQ_accum written once per tile
//   of K, read once per tile but the first, and once at the end; dK_parts, dV_parts written and
//   read once; dQ, dK, dV once.
// Workspace: L and D; dQ_accum; the parts; the counter and the turns, zero before and after.
//   Launches that run at the same time must not share it: with mixed tickets an adder might wait
//   for ever.
// Shapes: d up to 128, padded with zeros to 32, 64, 96 or 128. Needs sm_90a.
#pragma once

#include "08_tensor_cores/hopper_backward/more/subgroups.cuh"
#include "08_tensor_cores/hopper_backward/more/turns.cuh"

namespace flash::tensor_cores::hopper_backward_more_divided {
namespace {

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, const __grid_constant__ BackwardMaps maps,
                    BackwardTensors<T> all, Tensor<float> dQ_accum, Tensor<int> counter,
                    Tensor<int> turns, int heads_at_once, PartialGradients parts) {
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
  OrderedWork<Shape> work(rule.problem, heads_at_once, work_id);
  work.kv_head =
      work.group / parts.subgroups;  // the subgroup's K and V are those of the whole group

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
    consume<T>(shared, rule, parts, work);
  }
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const PartialGradients parts = partial_gradients(a);
    ScoreRule rule = score_rule(a);
    rule.problem = divided(a.problem, parts.subgroups);  // for the kernel a subgroup is a group
    const Problem& p = rule.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardMaps maps = backward_maps<Shape>(a);
    // No block stores dQ of queries that see no key: clear it here.
    const BackwardTensors<T> all =
        prepare<T, Shape::Width>(a, p.causal && p.Nq > p.Nk ? &dQ_accum : nullptr);
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    launch("backward_divided",
           {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, rule, maps, all, view<float>(dQ_accum),
           view<int>(a.workspace("counter")), view<int>(a.workspace("turns")),
           heads_in_turns<Shape>(a, p, tiles), parts);
    sum_parts<T, Shape::Width>(a, parts.subgroups);
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
      "divided", "blocks share a group of heads where whole groups make too few blocks",
      [](const FullProblem& p, Pass pass) {
        return pass == Pass::backward && best_subgroups<shapes>(p) > 1;
      });
  step.tiles = tiles_of_subgroups<shapes>;
  step.workspace = [](const Problem& p, Pass pass) {
    std::vector<WorkspaceSpec> list = workspace_of_turns(p, pass);
    if (pass == Pass::backward) add_partial_gradients(list, p, best_subgroups<shapes>(p));
    return list;
  };
  step.atomic_dQ = false;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_divided
