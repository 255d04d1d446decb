// 08 Tensor cores, Hopper backward, all of more/: products become P by a rule, which is a parameter
// of these kernels: PlainRule for what the ladder takes and OptionsRule for a window or a softcap,
// both with L times log2(e); ScoreRule for any bias and scale. And the producer; and their Variant.
#pragma once

#include "08_tensor_cores/hopper_backward/shapes.hpp"
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

/// A rule whose run has a softcap. A type, so that kernels without a softcap do not carry its work,
/// 3 % of the time (H200).
template <class Rule>
struct Capped : Rule {};
template <class Rule>
constexpr bool IS_CAPPED = false;
template <class Rule>
constexpr bool IS_CAPPED<Capped<Rule>> = true;

/// Whether scores are capped. Always true or always false, but asked at run time: where ptxas knows
/// the answer, it spills registers.
template <class Rule>
__device__ bool is_capped([[maybe_unused]] const Rule& rule) {
  if constexpr (IS_CAPPED<Rule>) return opaque(rule.problem.softcap) != 0.0f;
  return false;
}

template <class Rule>
constexpr bool L_IN_POWERS_OF_2 = !std::is_same_v<Rule, ScoreRule>;

/// (8.11)  Products become P^T. S^T begins at query query0 of a head (over all batches) and at key
/// key0. With options there is no bias: nvcc would spill. `slopes` takes a softcap's derivatives.
template <class Rule, class Scores, class Slopes = NoSlope>
__device__ void recompute_P_by_rule(const Rule& rule, Scores& St,
                                    const QueryStats<L_IN_POWERS_OF_2<Rule>>& stats, int head,
                                    int query0, int key0, const Slopes& slopes = {}) {
  if constexpr (std::is_same_v<Rule, PlainRule>) {
    mask_transposed(St, rule.problem, query0, key0);
    recompute_P_log2(St, stats, rule.problem.scale);
  } else if constexpr (Rule::OPTIONS) {
    if (is_capped(rule)) rule.cap(St, slopes);
    // opaque(): no register keeps what comes of it for the next tile.
    rule.template mask</*Transposed=*/true>(St, query0, opaque(key0));
    recompute_P_log2(St, stats, rule.late_scale);
  } else {
    rule.template apply</*Transposed=*/true>(St, head, query0, key0);
    recompute_P(St, stats, rule.late_scale, rule.subtract_first());
  }
}

/// The producer, one thread: tiles of queries, each as soon as its buffer is empty; K and V with
/// the first. The first `requested` tiles are on their way already.
template <class T, class Shape, class Work>
__device__ void produce(Shared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                        const Tensor<const float>& L_and_D, const Work& work, int requested = 0) {
  auto at = work.first(problem);
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    if (iteration < requested) continue;
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(shared.empty[stage], parity);
    shared.load_tiles(stage, maps, work, at, /*first=*/iteration == 0);
    shared.load_stats(stage, L_and_D, work.b, at);
  }
}

/// Calls f(rule): that for a plain problem has the shorter loop of the ladder's steps.
template <class F>
void by_rule(const Attention& a, F f) {
  if (is_of_ladder(a.problem)) {
    f(PlainRule{a.problem});
  } else {
    f(score_rule(a));
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
