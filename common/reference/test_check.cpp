// The comparison: what it lets pass, what it finds and where. Each typical mistake of a kernel must fail in every dtype.
#include "common/reference/reference.hpp"
#include "common/reference/test_inputs.hpp"
#include "common/reference/tolerance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

namespace flash {
namespace {

using test::infinity;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const Sample whole;  ///< every row

/// Names of the tensors that failed: "dq dk ".
std::string failed(const CheckReport& report) {
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
    p = test::problem_of(2, 4, 2, 23, 19, 16);
    p.causal = true;
    p.dtype = dtype;
    inputs = test::random_inputs<float>(p, Pass::backward);
    right = naive_same_precision(p, inputs, Pass::backward);
  }
  CheckReport check(const Results<float>& got) const { return Checker(p, inputs, Pass::backward, Sample{}).check(got); }
  FullProblem p;
  Inputs inputs;
  Results<float> right;
};

const TensorCheck& tensor(const CheckReport& report, std::string_view name) {
  for (const TensorCheck& check : report.tensors) {
    if (check.tensor == name) return check;
  }
  FAIL("no tensor " << name);
  return report.tensors.front();
}

std::array<int, 4> place(const TensorCheck& check) { return {check.worst.b, check.worst.h, check.worst.row, check.worst.col}; }

/// A kernel with this mistake solves this other problem.
struct Mistake {
  const char* name;
  void (*change)(FullProblem&, Inputs&);
  const char* failing;  ///< tensors
};

const Mistake mistakes[] = {
    {"causal mask missing", [](FullProblem& p, Inputs&) { p.causal = false; }, "o lse dq dk dv "},
    {"each query sees one key too few",
     [](FullProblem& p, Inputs& inputs) {
       p.bias = BiasKind::matrix;
       inputs.bias = HostTensor<float>({1, 1, p.Nq, p.Nk}, 0.0f);
       for (int i = p.Nq - p.Nk; i < p.Nq; ++i) inputs.bias(0, 0, i, i + p.Nk - p.Nq) = -infinity;
     },
     "o lse dq dk dv "},
    {"two rows of V swapped",
     [](FullProblem& p, Inputs& inputs) {
       for (int c = 0; c < p.d; ++c) std::swap(inputs.V(1, 1, 3, c), inputs.V(1, 1, 4, c));
     },
     "o dq dk "},
    {"one query head of the group is left out of the gradients",
     [](FullProblem& p, Inputs& inputs) {
       for (int i = 0; i < p.Nq; ++i) {
         for (int c = 0; c < p.d; ++c) inputs.dO(1, 1, i, c) = 0.0f;
       }
     },
     "dq dk dv "},
};

}  // namespace

TEST_CASE("check: a correct result passes, with every tensor reported") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Fixture f(dtype);
    const CheckReport report = f.check(f.right);
    CHECK(failed(report) == "");
    CHECK_FALSE(report.sampled);
    std::string names;
    for (const TensorCheck& check : report.tensors) {
      names += check.tensor + " ";
      CHECK(check.max_abs > 0);
      CHECK(check.rel_l2 > 0);
      CHECK(check.rel_l2 < 0.01);
      CHECK((check.tolerance <= 1e-4 || dtype != Dtype::fp32));  // 6e-5 by libc++, whose std::normal_distribution is another
    }
    CHECK(names == "o lse dq dk dv ");
    CHECK(Checker(f.p, f.inputs, Pass::forward, whole).check(f.right).tensors.size() == 2);
  }
}

TEST_CASE("check: one wrong element is found, with its position and values") {
  const Fixture f;
  Results<float> got = f.right;
  got.dK(1, 1, 7, 5) += 0.01f;
  const CheckReport report = f.check(got);
  CHECK(failed(report) == "dk ");
  const TensorCheck& dk = tensor(report, "dk");
  CHECK(place(dk) == std::array{1, 1, 7, 5});
  CHECK(dk.worst.got == got.dK(1, 1, 7, 5));
  CHECK(dk.worst.expected == doctest::Approx(f.right.dK(1, 1, 7, 5)));
  CHECK(dk.max_abs == doctest::Approx(0.01).epsilon(0.01));
}

TEST_CASE("check: NaN fails wherever it is, and is the worst element") {
  const Fixture f;
  Results<float> got = f.right;
  got.O(1, 2, 9, 3) = got.O(1, 3, 9, 3) = nan;
  got.O(0, 0, 22, 0) = infinity;  // comes first and is as far off, but NaN tells more
  const CheckReport report = f.check(got);
  CHECK(failed(report) == "o ");
  const TensorCheck& o = tensor(report, "o");
  CHECK(o.max_abs == std::numeric_limits<double>::infinity());
  CHECK(o.non_finite == 3);
  CHECK(place(o) == std::array{1, 2, 9, 3});
}

TEST_CASE("check: a wrong infinity fails, and L = -inf of a masked row agrees, and must be there") {
  const Fixture f;
  REQUIRE(f.right.L(0, 0, 0, 0) == -infinity);  // Nq > Nk: the first queries see no key
  for (const float wrong : {infinity, nan, 0.0f, -1e30f}) {
    Results<float> got = f.right;
    got.L(0, 0, 0, 0) = wrong;
    const TensorCheck lse = tensor(f.check(got), "lse");
    CHECK_FALSE(lse.passed);
    CHECK(lse.max_abs == std::numeric_limits<double>::infinity());
    CHECK(lse.worst.row == 0);
    CHECK(lse.non_finite == 0);
  }
  Results<float> got = f.right;
  got.L(0, 0, 20, 0) = -infinity;
  CHECK(failed(f.check(got)) == "lse ");
  got = f.right;
  got.O(0, 0, 0, 0) = 0.001f;  // and O = 0 of such a row
  CHECK(failed(f.check(got)) == "o ");
}

TEST_CASE("check: the error of the naive implementation counts twice, for gradients three times") {
  const Fixture f;
  const Measured right{exact_results(f.p, f.inputs, Pass::backward), f.right};
  // An error of 8 in one element, beside which nothing else matters.
  each_tensor(f.p, Pass::backward, [&](const ProblemTensor& each) {
    if (each.result == nullptr) return;
    Measured spoiled = right;
    (spoiled.naive.*each.result).values.back() = static_cast<float>((right.exact.results.*each.in_double).values.back()) + 8.0f;
    const double tolerance = (tolerances(f.p, f.inputs, spoiled).*each.in_double).values.back();
    CHECK(tolerance == doctest::Approx(each.backward ? 24 : 16).epsilon(1e-4));
  });
}

TEST_CASE("check: one key: the naive result is exact by luck, and rounding differently still passes") {
  const FullProblem p = test::problem_of(1, 1, 1, 1, 1, 128);
  const Inputs inputs = test::random_inputs<float>(p, Pass::backward);
  const Results<float> naive = naive_same_precision(p, inputs, Pass::backward);
  REQUIRE(naive.O.values == inputs.V.values);  // P = 1
  // dP summed in another order than D: what is left of dP - D is rounding. O and dV are one unit in the last place off.
  float dP = 0, D = 0;
  for (int c = 0; c < p.d; ++c) D += inputs.dO(0, 0, 0, c) * inputs.V(0, 0, 0, c);
  for (int c = p.d; c-- > 0;) dP += inputs.dO(0, 0, 0, c) * inputs.V(0, 0, 0, c);
  REQUIRE(dP != D);
  Results<float> got = naive;
  for (int c = 0; c < p.d; ++c) {
    got.dQ(0, 0, 0, c) = p.scale * (dP - D) * inputs.K(0, 0, 0, c);
    got.dK(0, 0, 0, c) = p.scale * (dP - D) * inputs.Q(0, 0, 0, c);
    got.O(0, 0, 0, c) = std::nextafter(got.O(0, 0, 0, c), infinity);
    got.dV(0, 0, 0, c) = std::nextafter(got.dV(0, 0, 0, c), infinity);
  }
  const CheckReport report = Checker(p, inputs, Pass::backward, whole).check(got);
  CHECK(failed(report) == "");
  CHECK(tensor(report, "dk").max_abs > 0);
  CHECK(tensor(report, "dk").tolerance < 5e-5);
  CHECK(tensor(report, "dv").tolerance < 1e-5);
}

TEST_CASE("check: one key whose score is 0, V = 1: tolerances are the losses of the dtype alone") {
  constexpr double sum = 0x1p-23, in_16_bits = (0x1p-20 + sum) + (0x1p-22 + 0x1p-20);
  const struct {
    Dtype dtype;
    double L, O;
  } losses[] = {{Dtype::fp32, 0x1p-24 + sum, (0x1p-24 + sum) + (0x1p-26 + 0x1p-24)},
                {Dtype::fp16, 0x1p-20 + sum, in_16_bits + 0x1.8p-11 + 0x1p-25},
                {Dtype::bf16, 0x1p-20 + sum, in_16_bits + 0x1.8p-8}};
  for (const auto& loss : losses) {
    FullProblem p = test::problem_of(1, 1, 1, 1, 1, 8);
    p.dtype = loss.dtype;
    Inputs inputs = test::random_inputs<float>(p, Pass::forward);
    std::ranges::fill(inputs.Q.values, 0.0f);
    std::ranges::fill(inputs.V.values, 1.0f);
    const CheckReport report = Checker(p, inputs, Pass::forward, whole).check(naive_same_precision(p, inputs, Pass::forward));
    CHECK(tensor(report, "lse").tolerance == doctest::Approx(loss.L).epsilon(1e-9));
    CHECK(tensor(report, "o").tolerance == doctest::Approx(loss.O).epsilon(1e-9));
  }
}

TEST_CASE("check: weights that are alike lose no more than a third of a rounding each as they are added up") {
  const int n = 3000;
  const double bound = exact::sum_error(n, n) - exact::sum_error(n, 0);
  double worst = 0;
  for (int k = 0; k < 500; ++k) {
    const float w = 1.0f + static_cast<float>(k) / 500;
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += w;
    worst = std::max(worst, std::abs(static_cast<double>(sum) / (static_cast<double>(w) * n) - 1));
  }
  CHECK(worst <= bound);
  CHECK(worst > 0.7 * bound);
  // Weights that differ do not get that allowance.
  const FullProblem p = test::problem_of(1, 2, 1, 2, n, 32);
  const Exact exact = exact_results(p, test::random_inputs<float>(p, Pass::backward), Pass::backward);
  for (const double sum : exact.queries.sum.values) CHECK(sum == exact::sum_error(n, 0));
  for (const double sum : exact.keys.sum.values) CHECK(sum == exact::sum_error(n, 0));
}

TEST_CASE("check: where a bias of -1e9 swallows a row's scores, its O may be any mean of V, and no other row profits") {
  FullProblem p = test::problem_of(1, 1, 1, 10, 10, 8);
  p.bias = BiasKind::matrix;
  Inputs inputs = test::random_inputs<float>(p, Pass::backward);
  std::fill(inputs.bias.values.begin(), inputs.bias.values.end(), 0.0f);
  const auto swallow = [&](float bias) { std::fill_n(&inputs.bias(0, 0, 3, 0), p.Nk, bias); };
  swallow(-1e9f);
  Results<float> got = naive_same_precision(p, inputs, Pass::backward);
  for (int c = 0; c < p.d; ++c) got.O(0, 0, 3, c) = inputs.V(0, 0, 7, c);
  const Checker checker(p, inputs, Pass::backward, whole);
  CHECK(failed(checker.check(got)) == "");
  got.dQ(0, 0, 4, 5) += 1e-3f;
  CHECK(failed(checker.check(got)) == "dq ");
  got.O(0, 0, 3, 2) = 30.0f;
  CHECK(failed(checker.check(got)) == "o dq ");
  swallow(-1e3f);  // which leaves a row some digits
  got = naive_same_precision(p, inputs, Pass::backward);
  got.dQ(0, 0, 4, 5) += 1e-5f;
  CHECK(failed(Checker(p, inputs, Pass::backward, whole).check(got)) == "dq ");
}

TEST_CASE("check: a value too large for fp16 agrees with infinity and with nothing else") {
  // Equal scores: P = 1/2, and dV sums four times half the largest fp16.
  FullProblem p = test::problem_of(1, 1, 1, 4, 2, 1);
  p.dtype = Dtype::fp16;
  Inputs inputs = test::random_inputs<float>(p, Pass::backward);
  std::fill(inputs.Q.values.begin(), inputs.Q.values.end(), 0.0f);
  std::fill(inputs.dO.values.begin(), inputs.dO.values.end(), 65504.0f);
  Results<float> got = naive_same_precision(p, inputs, Pass::backward);
  REQUIRE(got.dV.values[0] == infinity);
  const Checker checker(p, inputs, Pass::backward, whole);
  CHECK(tensor(checker.check(got), "dv").passed);
  for (const float wrong : {-infinity, 65504.0f, nan}) {
    got.dV.values[0] = wrong;
    CHECK_FALSE(tensor(checker.check(got), "dv").passed);
  }
}

TEST_CASE("check: typical mistakes of kernels fail in every dtype, in each tensor that they touch") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Fixture f(dtype);
    CAPTURE(to_string(dtype));
    for (const Mistake& mistake : mistakes) {
      CAPTURE(mistake.name);
      FullProblem p = f.p;
      Inputs inputs = f.inputs;
      mistake.change(p, inputs);
      CHECK(failed(f.check(naive_same_precision(p, inputs, Pass::backward))) == mistake.failing);
    }
  }
}

}  // namespace flash
