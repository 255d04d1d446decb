// One query whose bias swallows its scores: nobody computes its row to any digits, and no other row may profit from that.
#include "common/reference/test_fixture.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace flash {
namespace {

using test::failed;
using test::whole;

constexpr int far_row = 3, heads = 2, length = 10, d = 8;

/// Everything a test needs with one far row: query 3 of head 0. Head 1 has its own bias and none of that.
struct FarRow {
  explicit FarRow(float far) {
    p = test::make_problem(1, heads, heads, length, length, d);
    p.bias = BiasKind::matrix;
    p.bias_per_head = true;
    inputs = test::random_inputs<float>(p, Pass::backward);
    std::fill(inputs.bias.values.begin(), inputs.bias.values.end(), 0.0f);
    for (int j = 0; j < length; ++j) inputs.bias(0, 0, far_row, j) = far;
    right = naive_same_precision(p, inputs, Pass::backward);
  }
  FullProblem p;
  Inputs inputs;
  Results<float> right;
};

const std::vector<float> far_biases{-1e9f, 1e9f, std::numeric_limits<float>::lowest()};
const Sample some_rows{.whole = false, .slices = {{0, 0, {0, far_row, 4, 9}, {0, 5, 9}}, {0, 1, {0, 4, 9}, {0, 5, 9}}}};

/// `right` with an error in one element.
HostTensor<float> with_error(HostTensor<float> right, int h, int row, float error) {
  right(0, h, row, d == right.shape[3] ? 5 : 0) += error;
  return right;
}

}  // namespace

TEST_CASE("a far row passes as a plain implementation computes it") {
  for (const float far : far_biases) {
    CAPTURE(far);
    const FarRow f(far);
    CHECK(failed(check_results(f.p, f.inputs, Pass::backward, f.right, whole)) == "");
    CHECK(failed(check_results(f.p, f.inputs, Pass::backward, f.right, some_rows)) == "");
  }
}

TEST_CASE("its O may be any mean of the rows of V, and nothing far beyond") {
  for (const float far : far_biases) {
    CAPTURE(far);
    const FarRow f(far);
    const Checker checker(f.p, f.inputs, Pass::forward, whole);
    Results<float> got = f.right;
    for (int c = 0; c < d; ++c) got.O(0, 0, far_row, c) = f.inputs.V(0, 0, 7, c);  // another order of roundings: one key wins
    CHECK(failed(checker.check(got)) == "");
    got.O(0, 0, far_row, 2) = 30.0f;
    CHECK(failed(checker.check(got)) == "o ");
    got.O(0, 0, far_row, 2) = std::numeric_limits<float>::quiet_NaN();
    CHECK(failed(checker.check(got)) == "o ");
  }
}

TEST_CASE("a wrong element of another row fails, and is the one reported") {
  for (const float far : far_biases) {
    CAPTURE(far);
    const FarRow f(far);
    for (const Sample& sample : {whole, some_rows}) {
      const Checker checker(f.p, f.inputs, Pass::backward, sample);
      for (const int h : {0, 1}) {
        for (const int row : {0, 4, 9}) {
          for (const auto of : {&Results<float>::O, &Results<float>::L, &Results<float>::dQ}) {
            Results<float> got = f.right;
            got.*of = with_error(f.right.*of, h, row, 1e-3f);
            // The far row, within its own tolerance, has the larger error.
            got.O(0, 0, far_row, 1) += 0.5f;
            const CheckReport report = checker.check(got);
            CHECK_FALSE(report.passed);
            for (const TensorCheck& check : report.tensors) {
              if (check.passed) continue;
              CHECK(check.worst.h == h);
              CHECK(check.worst.row == row);
              CHECK(check.max_abs == doctest::Approx(1e-3).epsilon(0.05));
              CHECK(check.tolerance < 1e-4);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("gradients of keys that the far row does not see are held to the usual tolerance") {
  // All keys of head 0 get weight from the far query, whose P = exp(S - L) is lost with L. Those of head 1 do not.
  for (const float far : far_biases) {
    CAPTURE(far);
    const FarRow f(far);
    for (const Sample& sample : {whole, some_rows}) {
      const Checker checker(f.p, f.inputs, Pass::backward, sample);
      for (const auto of : {&Results<float>::dK, &Results<float>::dV}) {
        Results<float> got = f.right;
        got.*of = with_error(f.right.*of, 1, 5, 1e-3f);
        CHECK(failed(checker.check(got)) == (of == &Results<float>::dK ? "dk " : "dv "));
      }
    }
  }
}

TEST_CASE("padding by -1e9 leaves ordinary tolerances") {
  // Masked pairs have no weight, so the rows are ordinary: their tolerance must be too.
  FullProblem p = test::make_problem(1, 1, 1, length, length, d);
  p.bias = BiasKind::vector;
  Inputs inputs = test::random_inputs<float>(p, Pass::backward);
  for (int j = 0; j < length; ++j) inputs.bias(0, 0, 0, j) = j < 6 ? 0.0f : -1e9f;
  const Results<float> right = naive_same_precision(p, inputs, Pass::backward);
  const CheckReport report = check_results(p, inputs, Pass::backward, right, whole);
  CHECK(failed(report) == "");
  for (const TensorCheck& check : report.tensors) CHECK(check.tolerance < 1e-4);
}

}  // namespace flash
