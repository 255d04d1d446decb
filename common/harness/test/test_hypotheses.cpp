#include "common/harness/hypotheses.hpp"
#include "common/harness/inputs.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace flash {

TEST_CASE("empty rows: named if they alone are wrong") {
  FullProblem p;
  p.Nq = 7, p.Nk = 4, p.d = 8;
  p.causal = true;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const Inputs inputs = make_inputs(p, InputKind::normal, 1, pass);
    Results<float> got = naive_same_precision(p, inputs, pass);
    got.O(0, 1, 2, 3) = nan;
    CHECK(only_empty_rows_wrong(p, inputs, pass, got) ==
          std::string("only rows that see no key are wrong, 0 to 2 of each head: they must give O = 0 and L = -inf") +
              (pass == Pass::backward ? ", and dQ = 0" : ""));
    got.O(0, 0, 3, 0) += 1;  // row 3 sees a key
    CHECK(only_empty_rows_wrong(p, inputs, pass, got) == "");
  }
  p.causal = false;
  const Inputs inputs = make_inputs(p, InputKind::normal, 1, Pass::forward);
  CHECK(only_empty_rows_wrong(p, inputs, Pass::forward, naive_same_precision(p, inputs, Pass::forward)) == "");
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
