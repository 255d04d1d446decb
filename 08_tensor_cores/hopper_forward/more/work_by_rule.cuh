// 08 Tensor cores, Hopper forward: what options.cuh has in place of step 7's Work and Problem.
#pragma once

#include "08_tensor_cores/parts/lazy_softmax.cuh"
#include "08_tensor_cores/parts/panels_forward.cuh"
#include "common/parts/ragged.cuh"
#include "common/parts/score_rule.cuh"

namespace flash::tensor_cores::hopper_forward_more_options {
namespace {

/// A tile of queries of a head, and the tiles of keys that it visits. Unlike Work's, tiles lie from
/// the first query on: before it a bias has no rows, and a ragged batch has the previous sequence.
/// There all count from the sequence's first row, and the longest tile is numbered first.
template <class Shape, class Rule>
struct WindowedWork : Work<Shape> {
  struct Tiles {
    int begin, end;
  } tiles;  // from the first that one of the rows sees to before `end`
  // In a ragged batch a copy, which has entered the tile's sequence.
  std::conditional_t<Rule::RAGGED, Rule, const Rule&> rule;

  __device__ WindowedWork(const Rule& rule_of_all, const Schedule& schedule, int work_id)
      : Work<Shape>(rule_of_all.problem, schedule, work_id), rule(rule_of_all) {
    if constexpr (Rule::RAGGED)
      this->query0 = rule.enter(this->tile);
    else
      this->query0 = (schedule.tiles_of_head - 1 - this->tile) * Shape::Br;
    tiles = tiles_seen_by(rule.problem, this->query0, Shape::Br);
  }

  /// By the `rows` rows from `first` on; rows beyond the last query see none.
  template <class SomeProblem>
  __device__ static Tiles tiles_seen_by(const SomeProblem& p, int first, int rows) {
    const int end_key = p.end_key(min(first + rows, p.Nq) - 1);
    const int end = (end_key + Shape::Bc - 1) / Shape::Bc;
    return {first < p.Nq ? p.first_key(first) / Shape::Bc : end, end};
  }
};

/// A rule in a head, in place of a problem, for LazySoftmax.
template <class Shape, class Rule>
struct ProblemByRule {
  const Rule& rule;
  int head;
  float scale = rule.late_scale;

  __device__ int visible_keys(int query) const { return rule.problem.end_key(query); }
};

/// LazySoftmax calls it in exact tiles.
template <class Scores, class Shape, class Rule>
__device__ void mask(Scores& S, const ProblemByRule<Shape, Rule>& problem, int query0, int key0) {
  if constexpr (Shape::SCALE_FIRST) {
    problem.rule.apply(S, problem.head, query0, key0);
  } else {
    problem.rule.mask(S, query0, key0);
  }
}

/// (9.7)  In all tiles: S is capped, unless apply() does it.
template <class Scores, class Shape, class Rule>
__device__ void cap(Scores& S, const ProblemByRule<Shape, Rule>& problem) {
  if constexpr (Rule::OPTIONS && !Shape::SCALE_FIRST) {
    if (problem.rule.problem.softcap != 0.0f) problem.rule.cap(S, NoSlope{});
  }
}

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_more_options
