#include "common/machine/isa/float16.hpp"
#include "common/reference/reference.hpp"
#include "common/reference/tolerance.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace flash {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// |got - expected|; infinity if `got` is NaN. Infinities of the same sign agree, also where the type cannot hold `expected`.
double difference(float got, double expected, Dtype dtype) {
  if (std::isnan(got)) return infinity;
  if (std::isinf(got) && got == round_to(dtype, static_cast<float>(expected))) return 0.0;
  return std::abs(static_cast<double>(got) - expected);
}

/// The factor f for which got = f expected, if one explains got to a thousandth; from sums over all elements.
std::optional<double> factor_of(double got_got, double got_expected, double expected_expected) {
  const double f = got_expected / expected_expected;
  const double left = got_got - f * got_expected;  // |got - f expected|^2 for the best f
  if (!(left <= 1e-6 * got_got)) return std::nullopt;
  return std::abs(f - std::round(f)) < 1e-3 ? std::round(f) : f;
}

}  // namespace

Checker::Checker(const FullProblem& p, const Inputs& inputs, Pass pass, const Sample& sample) : sampled_(!sample.whole) {
  Measured measured = sample.whole ? Measured{exact_results(p, inputs, pass), naive_same_precision(p, inputs, pass)}
                                   : measure_sample(p, inputs, pass, sample);
  Results<double> tolerated = tolerances(p, inputs, measured);

  // The rows, in the order in which exact_results() and measure_sample() give them.
  const auto all_rows = [&](int heads, int rows) {
    std::vector<Row> all;
    for (int head = 0; sample.whole && head < p.B * heads; ++head) {
      for (int row = 0; row < rows; ++row) all.push_back({head / heads, head % heads, row});
    }
    return all;
  };
  std::vector<Row> queries = all_rows(p.H, p.Nq), keys = all_rows(p.Hkv, p.Nk);
  for (const Sample::Slice& slice : sample.slices) {
    for (const int i : slice.queries) queries.push_back({slice.b, slice.h, i});
    for (const int j : slice.keys) keys.push_back({slice.b, p.kv_head(slice.h), j});
  }

  std::vector<Row> biases;
  for (const BiasRows& rows : bias_rows(p, pass, sample)) {
    for (const int i : rows.queries) biases.push_back({rows.b, rows.h, i});
  }

  each_tensor(p, pass, [&](const ProblemTensor& each) {
    if (each.result == nullptr) return;
    const std::vector<Row>& rows = of_keys(each.role) ? keys : each.role == Role::bias ? biases : queries;
    if (rows.empty()) return;
    std::vector<double>& values = (measured.exact.results.*each.in_double).values;
    expected_.push_back(
        {&each, each.dtype(p), each.shape(p), rows, std::move(values), std::move((tolerated.*each.in_double).values)});
  });
}

TensorCheck Checker::compare(const Expected& expected, const HostTensor<float>& got) {
  TensorCheck check;
  check.tensor = expected.tensor->file;
  if (got.shape != expected.shape) {
    throw std::logic_error(std::string("result ") + expected.tensor->file + " does not have the problem's shape");
  }
  const std::size_t cols = static_cast<std::size_t>(expected.shape[3]);
  double error_squared = 0, expected_squared = 0, got_squared = 0, got_expected = 0;
  std::pair<bool, double> worst{false, -1.0};  // any wrong element is worse than every right one
  for (std::size_t n = 0; n < expected.rows.size(); ++n) {
    const auto [b, h, row] = expected.rows[n];
    const double tolerance = expected.tolerances[n];
    bool row_is_wrong = false;
    for (std::size_t c = 0; c < cols; ++c) {
      const float value = got(b, h, row, static_cast<std::int64_t>(c));
      const double right = expected.values[n * cols + c];
      const double diff = difference(value, right, expected.dtype);
      const bool wrong = !(diff <= tolerance);
      row_is_wrong = row_is_wrong || wrong;
      if (!std::isfinite(value) && std::isfinite(right) && wrong) ++check.non_finite;
      error_squared += diff * diff;
      if (std::isfinite(right)) {
        expected_squared += right * right;
        got_squared += static_cast<double>(value) * value;
        got_expected += value * right;
      }
      // The first NaN is worse than any infinity before it: it is where to look.
      const double size = std::min(wrong ? diff / tolerance : diff, std::numeric_limits<double>::max());
      const std::pair badness{wrong, std::isnan(value) ? infinity : size};
      if (badness > worst) {
        worst = badness;
        check.max_abs = diff;
        check.tolerance = tolerance;
        check.worst = {b, h, row, static_cast<int>(c), value, right};
      }
    }
    if (row_is_wrong) check.wrong_rows.push_back({b, h, row});
  }
  check.rel_l2 = error_squared == 0 ? 0.0 : std::sqrt(error_squared / expected_squared);
  check.passed = !worst.first;
  if (!check.passed) check.factor = factor_of(got_squared, got_expected, expected_squared);
  return check;
}

CheckReport Checker::check(const Results<float>& got) const {
  CheckReport report;
  report.passed = true;
  report.sampled = sampled_;
  for (const Expected& expected : expected_) {
    report.tensors.push_back(compare(expected, got.*expected.tensor->result));
    report.passed = report.passed && report.tensors.back().passed;
  }
  return report;
}

}  // namespace flash
