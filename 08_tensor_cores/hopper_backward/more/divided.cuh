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
// New since more/ordered.cuh: a block loops over some of the query heads that share its key/value
// head, a *subgroup*.
// - Short sequences with few key/value heads make fewer tiles of keys than there are SMs. With n
//   subgroups per group there are n times as many blocks. They read fewer heads each, so that L2
//   holds what blocks share, even if under a mask they drift apart.
// - For the kernel a subgroup is a group: the host passes it a problem with n times as many
//   key/value heads (divided()). The kernel differs in two places: which K and V a block loads, and
//   where its dK and dV go.
// - dK and dV of a subgroup are partial sums. Blocks write them in fp32, and sum_partial_kernel
//   adds them up in a fixed order.
// - n comes from an estimate that depends on the problem alone (subgroups.cuh), as the workspace
//   does.
//
// Grid: Tc*B*Hkv*n, where a block loops over the query heads of its subgroup. Block: consumer
//   warpgroups, each of which owns 64 keys; then the producer and two adders, a warp each.
// HBM: K, V n times; Q, dO, L, D once per tile of K that they see; dQ_accum written once per tile
//   of K, read once per tile but the first, and once at the end; dK_partial, dV_partial written and
//   read once; dQ, dK, dV once.
// Workspace: L and D; dQ_accum; the partial sums; the counter and the turns, zero before and after.
//   Launches that run at the same time must not share it: with mixed tickets an adder might wait
//   for ever.
// Shapes: d up to 128, padded with zeros to 32, 64, 96 or 128. Needs sm_90a.
#pragma once

#include "08_tensor_cores/hopper_backward/more/subgroups.cuh"
#include "08_tensor_cores/hopper_backward/more/turns.cuh"

namespace flash::tensor_cores::hopper_backward_more_divided {
namespace {

/// TurnShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct BackwardShape : TurnShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const PartialGradients partial = partial_gradients(a);
    start_turns<T, Shape>("backward_divided", a, divided(a.problem, partial.subgroups), partial);
    sum_partial<T, Shape::Width>(a, partial.subgroups);
    convert<T, Shape::Width>(a, a.workspace("dQ_accum"));
  });
}

constexpr auto& shapes = warpgroup_shapes<BackwardShape>;

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
