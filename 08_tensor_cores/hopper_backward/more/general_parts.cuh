// 08 Tensor cores, Hopper backward: what the kernels of this folder include for every bias and
// scale, and their Variant.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"
#include "08_tensor_cores/parts/weights.cuh"
#include "common/parts/score_rule.cuh"

namespace flash::tensor_cores {
namespace {

/// A kernel of more/: for every bias and scale.
template <const auto& shapes>
Variant general_hopper_backward_step(const char* name, const char* idea,
                                     bool (*fastest)(const FullProblem&, Pass)) {
  Variant step = hopper_backward_step<shapes>(name, idea);
  step.takes = general_problem;
  step.fastest = fastest;
  step.only_if_fastest = true;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
