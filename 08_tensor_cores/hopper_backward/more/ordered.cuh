// 08 Tensor cores, Hopper backward, deterministic dQ, by blocks that take turns.
//
// New since step 4, `lead`, where blocks add to dQ in any order, and rounding differs from run to
// run: blocks take turns. Read loop_by_rule.cuh and turns.cuh first.
// - Blocks add to a tile of dQ in the order of their keys, each once its predecessor signals that
//   its addition is complete. Only adders wait, as long as dQ's ring has room. Completion takes
//   longer than the read by the TMA, so two adders alternate.
// - The block of the first keys stores instead of adding, so that only queries without a visible
//   key need a cleared dQ_accum.
// - OrderedWork of turns.cuh orders tiles of queries so that adders wait little.
// - A block draws a ticket, which says what tile of keys, of which head, is its work. It waits only
//   for smaller tickets, whose blocks run already.
// The price is 7 % of the time in the mean, against step 5 (H200).
//
// Grid, shapes: as step 1. Block: consumer warpgroups, each of which owns 64 keys; then the
//   producer and two adders, a warp each.
// HBM: as step 1, but dQ_accum is not cleared, nor read for the first tile of K.
// Workspace: L and D; dQ_accum; the counter and the turns, zero before and after. Launches that run
//   at the same time must not share it: with mixed tickets an adder might wait for ever.
#pragma once

#include "08_tensor_cores/hopper_backward/more/turns.cuh"

namespace flash::tensor_cores::hopper_backward_more_ordered {
namespace {

/// TurnShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct BackwardShape : TurnShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    by_rule(a, [&](const auto& rule) {
      start_turns<T, Shape>("backward_ordered", a, rule, GradientsOfGroup{});
    });
    convert<T, Shape::Width>(a, a.workspace("dQ_accum"));
  });
}

const Variant variant = [] {
  Variant step = general_hopper_backward_step<warpgroup_shapes<BackwardShape>>(
      "ordered", "blocks take turns at dQ: the same bits in each run",
      is_fastest<BackwardKernel::ordered>);
  step.workspace = workspace_of_turns;
  step.atomic_dQ = false;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_ordered
