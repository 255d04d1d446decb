// 08 Tensor cores, Hopper backward, deterministic dQ with chapter 09's softcap.
//
//   P^T = e^(scale K_j Q_i^T, capped, - L_i), masked                                     (8.11)
//   dS^T = slope o P^T o (dP^T - D_i)                                                    (9.2)
//
// New since ordered.cuh: the rule caps the scores, as in options.cuh. There a fixed order of dQ's
// sums takes one launch per tile of keys, so with few key/value heads most SMs stay idle: turns are
// 3 to 26 times as fast (H200).
//
// Grid, HBM, shapes, workspace: as ordered.cuh.
#pragma once

#include "08_tensor_cores/hopper_backward/more/turns.cuh"

namespace flash::tensor_cores::hopper_backward_more_ordered_softcap {
namespace {

/// TurnShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct BackwardShape : TurnShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Capped<OptionsRule> rule{score_rule<OptionsRule>(a)};
    start_turns<T, Shape>("backward_ordered_softcap", a, rule, GradientsOfGroup{});
    convert<T, Shape::Width>(a, a.workspace("dQ_accum"));
  });
}

const Variant variant = [] {
  Variant step = hopper_backward_step<warpgroup_shapes<BackwardShape>>("ordered_softcap",
                                                                       "ordered with a softcap");
  step.workspace = workspace_of_turns;
  step.takes = plain_problem | Features::softcap;
  step.needs = Features::softcap;
  step.atomic_dQ = false;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_ordered_softcap
