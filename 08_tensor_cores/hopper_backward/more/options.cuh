// 08 Tensor cores, Hopper backward, for chapter 09's window, softcap and ragged batches.
//
//   P^T = e^(scale K_j Q_i^T, capped, - L_i), masked                                     (8.11)
//   dS^T = slope o P^T o (dP^T - D_i)                                                    (9.2)
//
// New since step 5, `early`. In loop_by_rule.cuh:
// - OptionsRule masks the scores. Capped caps them first: the slope of the cap waits in 16 bits
//   where the warp will store dS^T, and multiplies dS^T before that.
// - With a window perhaps no query sees the block's keys: it loads nothing, and dK = dV = 0.
// In kernel_by_rule.cuh:
// - A block looks up its sequence, and the last query of its keys' windows as well as the first.
// - The tensor maps know only the whole batch, so a tile may reach into the next sequence, where
//   it masks the scores and stores nothing (rows_in_batch).
// - In L, D and dQ_accum each sequence has its own padded rows (row_of). dK and dV go to rows of
//   the sequence alone.
//
// A softcap costs a tanh per score, and a store and a load of its slope.
//
// Grid: as step 1, in a ragged batch one block per tile of a sequence and key/value head.
// Block: as step 4.  HBM, shapes: as step 1, but only the tiles in the window are visited.
// Workspace: L and D; dQ_accum; in a ragged batch with padding for each sequence.
#pragma once

#include "08_tensor_cores/hopper_backward/more/kernel_by_rule.cuh"

namespace flash::tensor_cores::hopper_backward_more_options {
namespace {

/// LoopShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct BackwardShape : LoopShape<Sizes...> {};

template <class Shape, class Rule>
void start_by(const Rule& rule, const Attention& a, int tiles, const char* name) {
  if (a.problem.softcap != 0.0f) return start_with<Shape>(Capped<Rule>{rule}, a, tiles, name);
  start_with<Shape>(rule, a, tiles, name);
}

template <class Shape>
void start(Shape, const Attention& a) {
  const OptionsRule rule = score_rule<OptionsRule>(a);
  const int tiles = static_cast<int>(blocks_for(a.problem.Nk, Shape::Bc));
  if (a.problem.sequences.empty()) return start_by<Shape>(rule, a, tiles, "backward_options");
  start_by<Shape>(RaggedRule{rule, view<const int>(a.offsets), view<const int>(a.order), 0}, a,
                  static_cast<int>(a.order.shape[2]), "backward_ragged");
}

const Variant variant = [] {
  Variant step = general_hopper_backward_step<warpgroup_shapes<BackwardShape>>(
      "options_early", "early with a window, a softcap; ragged batches",
      is_fastest<BackwardKernel::options_early>);
  step.workspace = options_workspace;
  step.by_launches = true;
  step.takes = plain_problem | Features::window | Features::softcap | Features::lengths;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_options
