#include "common/harness/hypotheses.hpp"
#include "common/harness/inputs.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace flash {

TEST_CASE("empty rows: named if they alone are wrong") {
  FullProblem p;
  p.Nq = 7, p.Nk = 4;
  p.causal = true;
  CheckReport check{.passed = false, .sampled = false, .tensors = std::vector<TensorCheck>(2)};
  check.tensors[0].tensor = "dq";
  check.tensors[0].wrong_rows = {{0, 1, 2}, {0, 0, 0}};
  check.tensors[1].tensor = "dk";
  check.tensors[1].passed = true;
  CHECK(only_empty_rows_wrong(p, check) != "");
  check.tensors[0].wrong_rows.push_back({0, 0, 3});  // sees a key
  CHECK(only_empty_rows_wrong(p, check) == "");
  check.tensors[0].wrong_rows.pop_back();
  check.tensors[1].passed = false;
  CHECK(only_empty_rows_wrong(p, check) == "");
}

TEST_CASE("explaining score: one that fp32 or exp cannot hold, of a key that the row sees") {
  FullProblem p;
  p.B = p.H = p.Hkv = p.Nq = 1;
  p.Nk = 2, p.d = 1;
  p.scale = 1;
  p.bias = BiasKind::vector;
  Inputs inputs = make_inputs(p, InputKind::ones, 1, Pass::forward);
  const auto explains = [&](float first, float second, bool subtracts_max, std::int64_t non_finite) {
    Variant variant;
    variant.subtracts_max = subtracts_max;
    inputs.K.values = {first, second};
    TensorCheck o;
    o.tensor = "o";
    o.non_finite = non_finite;
    return explaining_score(variant, p, inputs, {.passed = false, .sampled = false, .tensors = {o}});
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  inputs.bias.values = {0, 0};
  CHECK(explains(1, 100, false, 1) == 100);
  CHECK_FALSE(explains(1, 100, false, 0));  // finite: something else is wrong
  CHECK_FALSE(explains(1, 100, true, 1));
  CHECK(explains(-100, -90, false, 0) == -90);
  CHECK_FALSE(explains(-100, 1, false, 0));
  p.scale = 1e38f;
  CHECK(explains(10, 1, true, 0) == infinity);
  CHECK(explains(-10, -10, true, 0) == -infinity);
  inputs.bias.values = {-infinity, 0};
  CHECK_FALSE(explains(10, 1, true, 0));  // masked
  inputs.bias.values = {-infinity, -infinity};
  CHECK_FALSE(explains(10, 10, true, 1));
}

}  // namespace flash
