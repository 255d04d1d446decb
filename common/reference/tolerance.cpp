#include "common/reference/tolerance.hpp"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

template <class T>
double largest(const HostTensor<T>& tensor) {
  double result = 0;
  for (const T value : tensor.values) {
    if (std::isfinite(value)) result = std::max(result, std::abs(static_cast<double>(value)));
  }
  return result;
}

/// max|naive - exact|. Where the naive result is infinite (it overflows fp16, or L of a masked row), nothing is measured.
double naive_error(const HostTensor<float>& naive, const HostTensor<double>& exact) {
  double result = 0;
  for (std::size_t n = 0; n < exact.values.size(); ++n) {
    const double error = std::abs(static_cast<double>(naive.values[n]) - exact.values[n]);
    if (std::isfinite(error)) result = std::max(result, error);
  }
  return result;
}

}  // namespace

Tolerances tolerances(const Problem& problem, const Inputs& inputs, const Measured& measured) {
  const double u = std::ldexp(1.0, -24);
  const double u16 = problem.dtype == Dtype::fp32 ? 0.0 : std::ldexp(1.0, problem.dtype == Dtype::fp16 ? -11 : -8);
  const Results<double>& exact = measured.exact.results;
  const Results<float>& naive = measured.naive;
  const double e = u * (1 + measured.exact.terms.score);
  const double cancelled = u * std::abs(static_cast<double>(problem.scale)) * measured.exact.terms.dS;

  Tolerances t;
  t.L = 2 * naive_error(naive.L, exact.L) + e;
  t.O = 2 * naive_error(naive.O, exact.O) + (e / 4 + u) * largest(inputs.V) + 2 * u16 * largest(exact.O);
  t.dV = 3 * naive_error(naive.dV, exact.dV) + (e / 4 + u) * largest(inputs.dO) + 2 * u16 * largest(exact.dV);
  t.dQ = 3 * naive_error(naive.dQ, exact.dQ) + (e + 2 * u16) * largest(exact.dQ) + cancelled * largest(inputs.K);
  t.dK = 3 * naive_error(naive.dK, exact.dK) + (e + 2 * u16) * largest(exact.dK) + cancelled * largest(inputs.Q);
  return t;
}

}  // namespace flash
