// What chapter 01 claims. The grid that every stage passes is in common/grid.
#include "common/attention/cost.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace flash {
namespace {

using grid::problem_of;

/// One query, one key, d = 1: the single score is q * k = score, and O must be v.
Results<float> run_single_score(float score) {
  FullProblem problem = problem_of({.H = 1, .Hkv = 1, .Nq = 1, .Nk = 1, .d = 1});
  problem.scale = 1.0f, problem.input = InputKind::ones;
  Inputs inputs = make_inputs(problem, Pass::forward);
  inputs.K(0, 0, 0, 0) = score;
  return grid::run(grid::variant_named("naive"), problem, inputs, Pass::forward);
}

TEST_CASE("chapter: exp overflows once a score passes 88.7") {
  const Results<float> below = run_single_score(88.0f);
  CHECK(below.O(0, 0, 0, 0) == doctest::Approx(1.0));
  CHECK(below.L(0, 0, 0, 0) == doctest::Approx(88.0));
  const Results<float> above = run_single_score(89.0f);
  CHECK(std::isnan(above.O(0, 0, 0, 0)));  // exp(89) = inf, 1/inf = 0, inf * 0 = NaN
  CHECK(std::isinf(above.L(0, 0, 0, 0)));
}

TEST_CASE("chapter: exp underflows once all scores of a row lie below -104, and the row is lost") {
  const Results<float> kept = run_single_score(-80.0f);
  CHECK(kept.O(0, 0, 0, 0) == doctest::Approx(1.0));
  const Results<float> lost = run_single_score(-110.0f);
  CHECK(lost.O(0, 0, 0, 0) == 0.0f);  // should be 1
}

TEST_CASE("chapter: of equal scores each row of O is the mean of the visible rows of V") {
  FullProblem problem = problem_of({.Nq = 45, .Nk = 70, .d = 33});
  problem.causal = true, problem.input = InputKind::ramp;
  const Inputs inputs = make_inputs(problem, Pass::forward);
  const Results<float> got = grid::run(grid::variant_named("naive"), problem, inputs, Pass::forward);
  for (int i = 0; i < problem.Nq; ++i) {
    const int visible = i + problem.Nk - problem.Nq + 1;
    for (int c = 0; c < problem.d; ++c) {
      double mean = 0;
      for (int j = 0; j < visible; ++j) mean += static_cast<double>(inputs.V(0, 1, j, c)) / visible;
      CHECK(got.O(0, 1, i, c) == doctest::Approx(mean).epsilon(1e-5));
    }
    CHECK(got.L(0, 1, i, 0) ==
          doctest::Approx(problem.scale * static_cast<float>(problem.d) + std::log(visible)).epsilon(1e-5));
  }
}

TEST_CASE("cpu: bytes, sectors and barriers are those of the chapter's formulas (1.15) and (1.16)") {
  FullProblem gqa = problem_of({.B = 2, .H = 4, .Hkv = 2, .Nq = 33, .Nk = 100, .d = 40});
  FullProblem biased = problem_of({.Nq = 65, .Nk = 64, .d = 96});
  biased.causal = true;
  biased.bias = BiasKind::matrix;
  for (const FullProblem& p :
       grid::counted({problem_of({.Nq = 33, .Nk = 40, .d = 24}), problem_of({.Nq = 72, .Nk = 104, .d = 40}),
                      problem_of({.Nq = 113, .Nk = 203, .d = 59}), gqa, biased})) {
    for (const Variant& variant : grid::variants_for(p)) {
      for (const Pass pass : {Pass::forward, Pass::backward}) grid::check_prediction(variant, p, pass);
    }
  }
}

}  // namespace
}  // namespace flash
