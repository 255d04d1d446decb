#include "common/reference/measure.hpp"
#include "common/reference/test_inputs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace flash {
namespace {

/// max|naive - exact| / max|exact|, where equal infinities agree.
double relative_error(const HostTensor<float>& naive, const HostTensor<double>& exact) {
  REQUIRE(naive.shape == exact.shape);
  double error = 0, largest = 0;
  for (std::size_t n = 0; n < exact.values.size(); ++n) {
    if (static_cast<double>(naive.values[n]) == exact.values[n]) continue;  // also equal infinities
    const double difference = std::abs(static_cast<double>(naive.values[n]) - exact.values[n]);
    if (!(difference <= error)) error = difference;  // keeps a NaN
    largest = std::max(largest, std::abs(exact.values[n]));
  }
  return error / largest;
}

bool representable(const HostTensor<float>& tensor, Dtype dtype) {
  return std::all_of(tensor.values.begin(), tensor.values.end(), [&](float x) { return x == round_to(dtype, x); });
}

}  // namespace

TEST_CASE("the naive implementation is as good as its precision, and no better") {
  struct Case {
    Dtype dtype;
    double at_least, at_most;  // of a result's largest error, relative to its largest value
  };
  // A unit roundoff u is 6e-8, 5e-4 and 4e-3. Rounding of the results alone reaches about u/4 with these numbers of elements.
  for (const Case& test : {Case{Dtype::fp32, 1e-8, 5e-6}, Case{Dtype::fp16, 1e-4, 2e-3}, Case{Dtype::bf16, 8e-4, 1.6e-2}}) {
    for (const BiasKind bias : {BiasKind::none, BiasKind::vector, BiasKind::matrix, BiasKind::alibi}) {
      for (const bool causal : {false, true}) {
        FullProblem p = test::make_problem(2, 4, 2, 70, 61, 40);
        p.dtype = test.dtype;
        p.bias = bias;
        p.causal = causal;
        CAPTURE(describe(p));
        const Inputs inputs = test::random_inputs<float>(p, Pass::backward);
        const Results<double> exact = exact_results(p, inputs, Pass::backward).results;
        const Results<float> naive = naive_same_precision(p, inputs, Pass::backward);
        for (const double error : {relative_error(naive.O, exact.O), relative_error(naive.dQ, exact.dQ),
                                   relative_error(naive.dK, exact.dK), relative_error(naive.dV, exact.dV)}) {
          CHECK(error >= test.at_least);
          CHECK(error <= test.at_most);
        }
        CHECK(relative_error(naive.L, exact.L) <= 1e-6);  // fp32 whatever the dtype
        CHECK(representable(naive.O, p.dtype));
        CHECK(representable(naive.dQ, p.dtype));
        CHECK(representable(naive.dK, p.dtype));
        CHECK(representable(naive.dV, p.dtype));
        CHECK(representable(naive.L, p.dtype) == (p.dtype == Dtype::fp32));
      }
    }
  }
}

}  // namespace flash
