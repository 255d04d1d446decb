// 08 Tensor cores, Hopper backward, all steps: host code: which kernel is the fastest where.
#pragma once

#include "08_tensor_cores/parts/launch_backward.cuh"
#include "08_tensor_cores/parts/launch_hopper.cuh"

#include <string_view>

namespace flash::tensor_cores {
namespace {

/// "" or why no kernel is compiled for the problem.
inline std::string refuse_wide_heads(const Problem& p) {
  if (p.d <= 128) return refuse_backward_with_sum(p, width_of_sum(p));
  return "--head-dim is " + std::to_string(p.d) + "; allowed: 1 to 128; --variant relay takes 256";
}

/// The fastest kernel for Hopper, as measured (H200), but where blocks are few: more/divided.cuh.
inline std::string_view which_backward(const FullProblem& p) {
  if (p.d > 128) return "relay";
  if (!p.is_general()) return "options_lead";
  // Under a mask the blocks of a large group drift apart, and L2 loses its heads. Turns prevent it.
  if (p.d > 64 && p.causal && p.group_size() > 6 && p.Nq <= 4096) return "ordered";
  return (features_of(p) & ~plain_problem) == Features::none ? "early" : "general";
}

/// A step of the ladder.
template <const auto& shapes>
Variant hopper_backward_step(const char* name, const char* idea) {
  Variant step = plain_backward_step<shapes, true>(name, idea);
  step.refuse = refuse_wide_heads;
  step.refuse_on = refuse_unless_sm90;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
