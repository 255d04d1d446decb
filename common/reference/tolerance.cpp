#include "common/reference/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace flash {
namespace {

// Rows share their naive errors if the errors of their scores are within this factor. With random inputs all rows do.
constexpr double same_magnitude = 16;

template <class T>
double largest(const HostTensor<T>& tensor) {
  double result = 0;
  for (const T value : tensor.values) {
    if (std::isfinite(value)) result = std::max(result, std::abs(static_cast<double>(value)));
  }
  return result;
}

/// The error of each row's scores, with scores up to `most`.
std::vector<double> score_errors(const FullProblem& problem, const HostTensor<double>& scores, double most) {
  std::vector<double> errors;
  for (const double score : scores.values) errors.push_back(exact::score_error(problem, std::min(score, most)));
  return errors;
}

/// The largest |number(n)| of each row of the tensor, whose elements are counted by n. Where it is infinite (the naive result overflows fp16,
/// or L of a masked row), nothing is measured.
template <class Number>
std::vector<double> row_largest(const HostTensor<double>& tensor, Number&& number) {
  if (tensor.empty()) return {};  // the pass or the sample has no such rows
  const std::size_t cols = static_cast<std::size_t>(tensor.shape[3]);
  std::vector<double> all(tensor.values.size() / cols, 0.0);
  for (std::size_t n = 0; n < tensor.values.size(); ++n) {
    const double size = std::abs(number(n));
    if (std::isfinite(size)) all[n / cols] = std::max(all[n / cols], size);
  }
  return all;
}

/// For each row the largest naive error among the rows whose scores are off by at most `same_magnitude` times as much as its own.
std::vector<double> naive_errors(const HostTensor<float>& naive, const HostTensor<double>& exact,
                                 const std::vector<double>& score_error) {
  const std::vector<double> errors =
      row_largest(exact, [&](std::size_t n) { return static_cast<double>(naive.values[n]) - exact.values[n]; });
  std::vector<std::size_t> order(errors.size());  // by ascending score error
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score_error[a] < score_error[b]; });
  std::size_t next = 0;
  double shared = 0;
  std::vector<double> result(errors.size());
  for (const std::size_t row : order) {
    for (; next < order.size() && score_error[order[next]] <= same_magnitude * score_error[row]; ++next) {
      shared = std::max(shared, errors[order[next]]);
    }
    result[row] = shared;
  }
  return result;
}

}  // namespace

Results<double> tolerances(const FullProblem& problem, const Inputs& inputs, const Measured& measured) {
  const double u = exact::unit_32(problem.dtype), u16 = exact::unit_16(problem.dtype),
               scale = std::abs(static_cast<double>(problem.scale));
  const double smallest = problem.dtype == Dtype::fp16 ? std::ldexp(1.0, -25) : 0.0;
  const Results<double>& exact = measured.exact.results;
  const Results<float>& naive = measured.naive;
  const exact::Terms &queries = measured.exact.queries, &keys = measured.exact.keys;
  constexpr double no_limit = std::numeric_limits<double>::max();
  const std::vector<double> e_L = score_errors(problem, queries.score, no_limit);
  const std::vector<double> e_query = score_errors(problem, queries.score, exact::hopeless_score);
  const std::vector<double> e_key = score_errors(problem, keys.score, exact::hopeless_score);

  // factor * naive error + tiny, row by row
  const auto rows = [](double factor, const std::vector<double>& errors, const auto& tiny) {
    HostTensor<double> result({1, 1, static_cast<std::int64_t>(errors.size()), 1});
    for (std::size_t n = 0; n < errors.size(); ++n) result.values[n] = factor * errors[n] + tiny(n);
    return result;
  };
  // The rounding of a product with P or dS in 16 bits, whose row has this sum of squares, with rows of values up to `most`; and of its result.
  const auto rounding = [&](double squares, double most, double result) {
    return u16 * (std::sqrt(squares) * most / 2 + result) + smallest;
  };
  const std::vector<double>&s_query = queries.sum.values, &s_key = keys.sum.values;
  const double V = largest(inputs.V), O = largest(exact.O);
  const std::vector<double> O_row = row_largest(exact.O, [&](std::size_t n) { return exact.O.values[n]; });
  Results<double> t;
  t.L = rows(2, naive_errors(naive.L, exact.L, e_L), [&](std::size_t i) { return e_L[i] + s_query[i]; });
  t.O = rows(2, naive_errors(naive.O, exact.O, e_L), [&](std::size_t i) {
    return (e_query[i] + s_query[i]) * O_row[i] + (e_query[i] / 4 + u) * V + rounding(queries.P2.values[i], V, O);
  });
  if (inputs.dO.empty()) return t;

  const bool lorentz = problem.score == Score::lorentz;  // the gradient of a distance is no longer than 1
  const double Q = lorentz ? 1 : largest(inputs.Q), K = lorentz ? 1 : largest(inputs.K), dO = largest(inputs.dO);
  const double dQ = largest(exact.dQ), dK = largest(exact.dK), dV = largest(exact.dV);
  // What dV adds up: dO, or with centroids the gradients of the weighted sums: P |do| |(v, v0)|, whose last factor is at least 1.
  const auto added = [&](std::size_t j) { return problem.values == Values::centroid ? std::max(dO, keys.dP.values[j]) : dO; };
  t.dV = rows(3, naive_errors(naive.dV, exact.dV, e_key), [&](std::size_t j) {
    return (e_key[j] + u) * added(j) + s_key[j] * dV + rounding(keys.P2.values[j], added(j), dV);
  });
  const auto score_gradient = [&](const exact::Terms& terms, std::size_t row, double error, double most, double result) {
    return (error + terms.sum.values[row]) * result + u * scale * terms.dP.values[row] * most + terms.D.values[row] +
           rounding(terms.dS2.values[row], scale * most, result);
  };
  t.dQ = rows(3, naive_errors(naive.dQ, exact.dQ, e_L),
              [&](std::size_t i) { return score_gradient(queries, i, e_query[i], K, dQ); });
  t.dK =
      rows(3, naive_errors(naive.dK, exact.dK, e_key), [&](std::size_t j) { return score_gradient(keys, j, e_key[j], Q, dK); });
  const std::vector<double> e_bias = score_errors(problem, measured.exact.biases.score, no_limit);
  t.dBias = rows(3, naive_errors(naive.dBias, exact.dBias, e_bias),
                 [&](std::size_t i) { return measured.exact.biases.own.values[i]; });
  return t;
}

}  // namespace flash
