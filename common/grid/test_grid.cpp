// The grid that every stage must pass on both devices. A case covers all variants of the stage, forward and backward.
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/diagnosis.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <limits>
#include <vector>

namespace flash::grid {
namespace {

/// Calls test(variant, pass) for each variant that takes the problem. `pass`: backward if it has one, which runs its own forward first.
template <class Test>
void each_variant(const FullProblem& problem, Test&& test) {
  for (const Variant& variant : variants_for(problem))
    test(variant, variant.backward != nullptr ? Pass::backward : Pass::forward);
}

/// The values, or under a sanitizer the first alone, for cases whose numbers differ but not what threads do with them.
template <class T>
std::vector<T> brief(std::initializer_list<T> values) {
  return std::vector<T>(values.begin(), sanitized() ? values.begin() + 1 : values.end());
}

}  // namespace

TEST_CASE("grid: hyperbolic points that are one, almost one, or so far out that their distances or norms cancel") {
  for (const Values values : {Values::tangent, Values::centroid}) {
    const bool centroid = values == Values::centroid;
    FullProblem problem = problem_of({.H = 1, .Hkv = 1, .Nq = 33, .Nk = 33, .d = 24});
    problem.score = Score::lorentz;
    problem.values = values;
    if (!centroid) problem.scale = 1.0f;
    each_variant(problem, [&](const Variant& variant, Pass pass) {
      for (const float size : {1.0f, 30.0f}) {
        for (const float step : {0.0f, 1e-6f, 1e-2f}) {
          Inputs inputs = make_inputs(problem, pass);
          for (std::size_t n = 0; n < inputs.Q.values.size(); ++n) {
            if (centroid) {
              inputs.V.values[n] = 30 * size * (inputs.V.values[n % 24] + (n < 24 ? 0.0f : 100 * step * inputs.V.values[n]));
            } else {
              inputs.Q.values[n] *= size;
              inputs.K.values[n] = inputs.Q.values[n] * (1.0f + (n % 24 == 5 ? step : 0.0f));
            }
          }
          checked_run(variant, problem, inputs, pass);
        }
      }
    });
  }
}

TEST_CASE("grid: -inf in the bias masks single pairs and whole rows, and beside -1e9 the scores of a row vanish") {
  FullProblem problem = problem_of({.Nq = 34, .Nk = 40, .d = 24});
  problem.bias = BiasKind::matrix;
  for (const float far : brief({-1e9f, std::numeric_limits<float>::lowest(), -std::numeric_limits<float>::infinity()})) {
    CAPTURE(far);
    each_variant(problem, [&](const Variant& variant, Pass pass) {
      Inputs inputs = make_inputs(problem, pass);
      for (int j = 0; j < problem.Nk; ++j) {
        if (variant.subtracts_max) inputs.bias(0, 0, 3, j) = far;  // exp(-1e9) = 0: the row would be lost
        for (int i = 0; i < problem.Nq; ++i) {
          const bool masked = i == 0 || i == 33 || (i + 3 * j) % 5 == 0;
          if (masked) inputs.bias(0, 1, i, j) = -std::numeric_limits<float>::infinity();
        }
      }
      checked_run(variant, problem, inputs, pass);
    });
  }
}

TEST_CASE("grid: large scores are right where the max is subtracted, and reported where it is not") {
  // The second has several tiles of keys, so that a later tile has a far larger maximum.
  for (const int Nk : brief({41, 300})) {
    FullProblem problem = problem_of({.H = 1, .Hkv = 1, .Nq = 34, .Nk = Nk, .d = 48});
    problem.causal = Nk == 41, problem.input = InputKind::large;
    each_variant(problem, [&](const Variant& variant, Pass pass) {
      const Inputs inputs = make_inputs(problem, pass);
      const Results<float> got = run(variant, problem, inputs, pass);
      const CheckReport report = Checker(problem, inputs, pass, Sample{}).check(got);
      if (variant.subtracts_max) {
        expect_passed(report, variant, problem);
      } else {
        CHECK_FALSE(report.passed);
        CHECK(report.tensors.front().non_finite > 0);
      }
    });
  }
}

TEST_CASE("grid: however large the scores, a row's softmax ends, and picks the largest") {
  // From 2^24 on, the rounding of m alone exceeds what exp may be given: a kernel that waits until its sums are small must not wait for
  // ever, and one fused multiply-add, s * c - m * c, is not 0 where s = m. A GPU has those, the simulator does not.
  for (const float scale : brief({1e9f, -1e9f, 1e30f})) {
    for (const bool causal : brief({true, false})) {
      FullProblem problem = problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = sanitized() ? 70 : 300, .d = 64});
      problem.scale = scale;
      problem.causal = causal;
      each_variant(problem, [&](const Variant& variant, Pass) {
        if (variant.subtracts_max) checked_run(variant, problem, make_inputs(problem, Pass::forward), Pass::forward);
      });
    }
  }
}

TEST_CASE("grid: simple inputs, for which much cancels (long)") {
  // With a V of ones dP = D and all dS vanish; with a Q or K of ones dQ or dK does.
  for (const InputKind input : brief({InputKind::ones, InputKind::identity, InputKind::ramp})) {
    CAPTURE(to_string(input));
    check_variants_on(
        brief({problem_of({.Nq = 45, .Nk = 45, .d = 64}), problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = 64}),
               problem_of({.H = 1, .Hkv = 1, .Nq = 20, .Nk = 1500, .d = 32})}),
        /*by_thirds=*/true, input);
  }
}

TEST_CASE("grid: dK and dV of shared heads are as precise as sums over each head's queries, then over the heads (long)") {
  // One chain of additions over the queries of all 8 heads would be nearly 3 times as far off.
  const FullProblem problem = problem_of({.H = 8, .Hkv = 1, .Nq = sanitized() ? 64 : 1024, .Nk = 16, .d = 16});
  const Inputs inputs = make_inputs(problem, Pass::backward);
  const Checker checker(problem, inputs, Pass::backward, Sample{});
  const CheckReport naive = checker.check(naive_same_precision(problem, inputs, Pass::backward));
  // In 16 bits the rounding of P and dS is larger than that of any sum, and a kernel may multiply dP by P as rounded for dV.
  const double allowed = problem.dtype == Dtype::fp32 ? 1.2 : 1.3;
  each_variant(problem, [&](const Variant& variant, Pass pass) {
    if (pass == Pass::forward) return;
    const CheckReport got = checker.check(run(variant, problem, inputs, Pass::backward));
    for (std::size_t n = 0; n < naive.tensors.size(); ++n) {
      const std::string& tensor = naive.tensors[n].tensor;
      if (tensor != "dk" && tensor != "dv") continue;
      CHECK_MESSAGE(got.tensors[n].rel_l2 <= allowed * naive.tensors[n].rel_l2,
                    std::string(variant.name) << ": " << tensor << " is off by " << got.tensors[n].rel_l2
                                              << ", relative L2; naively by " << naive.tensors[n].rel_l2);
    }
  });
}

TEST_CASE("grid: repeated runs agree to the last bit") {
  // The simulator runs blocks in one order, where atomics would show as bytes that no formula predicts. On a GPU their order is left to chance,
  // so enough of them run often enough.
  if (device().info().kind == Backend::cpu) return;
  std::vector<FullProblem> problems = bias_gradients();
  problems.push_back(problem_of({.B = 4, .H = 8, .Hkv = 4, .Nq = 257, .Nk = 301, .d = 59}));
  problems.back().causal = true;
  for (const FullProblem& problem : problems) {
    each_variant(problem, [&](const Variant& variant, Pass pass) {
      const Inputs inputs = make_inputs(problem, pass);
      const Checker checker(problem, inputs, pass, Sample{});
      Runner runner(device(), variant, problem, inputs, pass);
      runner.run();
      const Results<float> first = runner.results();
      for (int repeat = 1; repeat < 100; ++repeat) {
        runner.run();
        CHECK_MESSAGE(repeats(variant, checker, first, runner.results()), std::string(variant.name) << ", repeat " << repeat);
      }
    });
  }
}

TEST_CASE("cpu: thread orders agree to the last bit") {
  FullProblem problem = problem_of({.H = 2, .Hkv = 1, .Nq = 35, .Nk = 43, .d = 24});
  problem.causal = true;
  each_variant(problem, [&](const Variant& variant, Pass pass) {
    const Inputs inputs = make_inputs(problem, pass);
    const Checker checker(problem, inputs, pass, Sample{});
    Runner runner(device(), variant, problem, inputs, pass);
    runner.run();
    const Results<float> first = runner.results();
    simt::Options options = simt::options();
    for (options.seed = 1; options.seed <= (sanitized() ? 1u : 3u); ++options.seed) {
      options.order = options.seed == 3 ? simt::Order::reverse : simt::Order::random;
      const simt::Simulated simulated(options);
      runner.run();
      CHECK_MESSAGE(repeats(variant, checker, first, runner.results()), std::string(variant.name) << ", seed " << options.seed);
    }
  });
}

TEST_CASE("cpu: no two threads race, none reads memory that nobody wrote, and the outputs are written whole") {
  if (!simt::can_watch()) return;  // AddressSanitizer has a library of its own
  for (const FullProblem& problem : {problem_of({.H = 2, .Hkv = 1, .Nq = 35, .Nk = 43, .d = 24}),
                                     problem_of({.H = 1, .Hkv = 1, .Nq = 66, .Nk = 130, .d = 40}),
                                     parsed("--lengths 3:20,30:9,0:5,7:0,40 --kv-heads 1 --head-dim 40 --causal")}) {
    each_variant(problem, [&](const Variant& variant, Pass pass) {
      Runner runner(device(), variant, problem, make_inputs(problem, pass), pass);
      simt::reset_findings();
      simt::Options options = simt::options();
      options.watch = true;
      const simt::Simulated watched(options);
      runner.run();
      const simt::Findings found = simt::findings();
      CHECK(found.accesses > 0);
      for (const simt::Race& race : found.races) FAIL_CHECK(std::string(variant.name) << ": " << sentence(race));
      for (const simt::UnwrittenRead& read : found.unwritten) FAIL_CHECK(std::string(variant.name) << ": " << sentence(read));
      for (const std::string& missing : never_written(runner.attention()))
        FAIL_CHECK(std::string(variant.name) << ": " << missing);
    });
  }
}

}  // namespace flash::grid
