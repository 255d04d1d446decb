// A problem with a correct result to spoil, for the tests of the comparison.
#pragma once

#include "common/reference/reference.hpp"
#include "common/reference/test_inputs.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flash::test {

const Sample whole;  ///< every row

/// Names of the tensors that failed: "dq dk ".
inline std::string failed(const CheckReport& report) {
  std::string names;
  for (const TensorCheck& check : report.tensors) {
    if (!check.passed) names += check.tensor + " ";
  }
  CHECK(report.passed == names.empty());
  return names;
}

/// GQA, more queries than keys, and queries that see no key.
struct Fixture {
  explicit Fixture(Dtype dtype = Dtype::fp32) {
    p = make_problem(2, 4, 2, 23, 19, 16);
    p.causal = true;
    p.dtype = dtype;
    inputs = random_inputs<float>(p, Pass::backward);
    right = naive_same_precision(p, inputs, Pass::backward);
  }
  CheckReport check(const Results<float>& got) const { return check_results(p, inputs, Pass::backward, got, Sample{}); }
  FullProblem p;
  Inputs inputs;
  Results<float> right;
};

}  // namespace flash::test
