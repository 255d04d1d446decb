// What chapter 02 claims. The grid that every stage passes is in common/grid.
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace flash {
namespace {

using grid::problem_of;

TEST_CASE("chapter: softmax does not change when a constant is added to a row, and L moves by the constant") {
  // Where the last column of K is 1 instead of 0, row i of S gains scale Q(i, d - 1).
  const FullProblem problem = problem_of({.H = 1, .Hkv = 1, .Nq = 40, .Nk = 75, .d = 20});
  Inputs inputs = make_inputs(problem, Pass::forward);
  // Powers of two of both signs, beyond what exp could take: the shift itself costs S some bits, hence the tolerance.
  const auto shift_of = [](int i) { return (i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(1 << (i % 10)); };
  for (int i = 0; i < problem.Nq; ++i) inputs.Q(0, 0, i, problem.d - 1) = shift_of(i) / problem.scale;
  Inputs shifted = inputs;
  for (int j = 0; j < problem.Nk; ++j) inputs.K(0, 0, j, problem.d - 1) = 0.0f, shifted.K(0, 0, j, problem.d - 1) = 1.0f;
  for (const Variant& variant : grid::variants()) {
    const Results<float> plain = grid::run(variant, problem, inputs, Pass::forward);
    const Results<float> moved = grid::run(variant, problem, shifted, Pass::forward);
    for (int i = 0; i < problem.Nq; ++i) {
      CHECK(std::abs(moved.L(0, 0, i, 0) - (plain.L(0, 0, i, 0) + shift_of(i))) < 1e-4f);
      for (int c = 0; c < problem.d; ++c) CHECK(std::abs(moved.O(0, 0, i, c) - plain.O(0, 0, i, c)) < 2e-4f);
    }
  }
}

TEST_CASE("chapter: a score beyond exp's range is no matter") {
  FullProblem problem = problem_of({.H = 1, .Hkv = 1, .Nq = 1, .Nk = 2, .d = 1});
  problem.scale = 1.0f, problem.input = InputKind::ones;
  Inputs inputs = make_inputs(problem, Pass::forward);
  inputs.K(0, 0, 0, 0) = 10000.0f;
  inputs.K(0, 0, 1, 0) = 9999.0f;
  inputs.V(0, 0, 0, 0) = 1.0f;
  inputs.V(0, 0, 1, 0) = 0.0f;
  for (const Variant& variant : grid::variants()) {
    const Results<float> got = grid::run(variant, problem, inputs, Pass::forward);
    CHECK(got.O(0, 0, 0, 0) == doctest::Approx(1.0 / (1.0 + std::exp(-1.0))));
    CHECK(got.L(0, 0, 0, 0) == doctest::Approx(10000.0 + std::log1p(std::exp(-1.0))));
  }
}

TEST_CASE("cpu: S is read three times and P written once, whoever owns the row (2.8)") {
  for (const FullProblem& p :
       grid::counted({problem_of({.Nq = 33, .Nk = 40, .d = 24}), problem_of({.Nq = 72, .Nk = 104, .d = 40}),
                      problem_of({.Nq = 113, .Nk = 203, .d = 59})})) {
    for (const Variant& variant : grid::variants()) grid::check_prediction(variant, p, Pass::forward);
  }
}

TEST_CASE("cpu: a warp per row touches an eighth of the sectors of S that a thread per row does (2.9)") {
  const FullProblem problem = problem_of({.Nq = 64, .Nk = 96, .d = 32});
  const std::uint64_t scores = 2u * 64u * 96u;
  const auto sectors_of_S = [&](const char* variant) {
    Runner runner(grid::device(), grid::variant_named(variant), problem, make_inputs(problem, Pass::forward), Pass::forward);
    for (const TensorTraffic& traffic : runner.count().traffic) {
      if (traffic.tensor == "S") return traffic.read_sectors;
    }
    return std::uint64_t{0};
  };
  CHECK(sectors_of_S("thread_per_row") == 3 * scores);    // neighbouring threads read different rows: a sector for each element
  CHECK(sectors_of_S("warp_per_row") == 3 * scores / 8);  // eight neighbouring elements to a sector
}

}  // namespace
}  // namespace flash
