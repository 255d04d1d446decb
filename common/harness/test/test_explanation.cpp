#include "common/harness/explanation.hpp"
#include "common/harness/inputs.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace flash {

TEST_CASE("empty rows: named if they alone are wrong") {
  Problem p;
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

}  // namespace flash
