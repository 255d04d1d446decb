// 08 Tensor cores, Hopper backward, all of more/: products become P by a rule, which is a parameter
// of these kernels: PlainRule for what the ladder takes, in the ladder's shorter loop, with L times
// log2(e); ScoreRule and OptionsRule for the rest. And their Variant.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"
#include "08_tensor_cores/parts/recompute_P.cuh"
#include "common/parts/score_rule.cuh"

#include <type_traits>

namespace flash::tensor_cores {
namespace {

/// The rule of a problem that the steps of the ladder take.
struct PlainRule {
  static constexpr bool OPTIONS = false, RAGGED = false;
  Problem problem;
};

template <class Rule>
constexpr bool L_IN_POWERS_OF_2 = std::is_same_v<Rule, PlainRule>;

/// (8.11)  Products become P^T. S^T begins at query query0 of a head (over all batches) and at key
/// key0. With options there is no bias: nvcc would spill.
template <class Rule, class Scores, class Slopes = NoSlope>
__device__ void recompute_P_by_rule(const Rule& rule, Scores& St,
                                    const QueryStats<L_IN_POWERS_OF_2<Rule>>& stats, int head,
                                    int query0, int key0, const Slopes& slopes = {}) {
  if constexpr (L_IN_POWERS_OF_2<Rule>) {
    mask_transposed(St, rule.problem, query0, key0);
    recompute_P_log2(St, stats, rule.problem.scale);
  } else {
    if constexpr (Rule::OPTIONS) {
      if (rule.scaling != Scaling::in_exponent) rule.scale(St, slopes);
      rule.template mask</*Transposed=*/true>(St, query0, key0);
    } else {
      rule.template apply</*Transposed=*/true>(St, head, query0, key0);
    }
    recompute_P(St, stats, rule.late_scale, rule.subtract_first());
  }
}

/// Prepares, and calls f(rule, tensors) to start a kernel: that for a plain problem has the shorter
/// loop of the ladder's steps.
template <class T, int Width, class F>
void prepare_by_rule(const Attention& a, const TensorRef* dQ_accum, F f) {
  if (is_of_ladder(a.problem)) {
    f(PlainRule{a.problem}, prepare<T, Width, /*LInPowersOf2=*/true>(a, dQ_accum));
  } else {
    f(score_rule(a), prepare<T, Width>(a, dQ_accum));
  }
}

/// A kernel of more/: for every bias and scale.
template <const auto& shapes>
Variant general_hopper_backward_step(const char* name, const char* idea,
                                     bool (*fastest)(const FullProblem&, Pass)) {
  Variant step = hopper_backward_step<shapes>(name, idea, fastest);
  step.takes = general_problem;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
