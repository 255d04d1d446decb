// 08 Tensor cores, Hopper backward, for any bias and any scale, which the exponents of the ladder's
// steps cannot take in.
//
//   P^T = e^(scale K_j Q_i^T + bias - L_i), masked                                       (8.11)
//
// New since step 5, `early`, whose kernel and loop take rules in kernel_by_rule.cuh and
// loop_by_rule.cuh: the rule. ScoreRule makes the scores, and L is subtracted before the factor
// log2(e) where that product would lose precision. The price is a multiplication and an addition
// per score, and reading the bias.
//
// Grid, shapes: as step 1. Block: as step 4. HBM: as step 1, and the bias for every pair of a
// visited tile.  Workspace: L and D; dQ_accum.
#pragma once

#include "08_tensor_cores/hopper_backward/more/kernel_by_rule.cuh"

namespace flash::tensor_cores::hopper_backward_more_general {
namespace {

/// LoopShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct BackwardShape : LoopShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  const int tiles = static_cast<int>(blocks_for(a.problem.Nk, Shape::Bc));
  start_with<Shape>(score_rule(a), a, tiles, "backward_general");
}

const Variant variant = general_hopper_backward_step<warpgroup_shapes<BackwardShape>>(
    "general", "early with a bias, for any scale", is_fastest<BackwardKernel::general>);

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_general
