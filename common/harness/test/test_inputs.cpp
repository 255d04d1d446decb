// Inputs: the same from the same seed, of the promised shape and distribution.
#include "common/attention/tensor.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/isa/float16.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace flash;

FullProblem small() {
  FullProblem p;
  p.B = 2, p.H = 6, p.Hkv = 3, p.Nq = 33, p.Nk = 41, p.d = 40;
  return p;
}

}  // namespace

TEST_CASE("inputs: the seed decides, and each tensor has a stream of its own") {
  const FullProblem p = small();
  const Inputs one = make_inputs(p, InputKind::normal, 1, Pass::backward);
  const Inputs again = make_inputs(p, InputKind::normal, 1, Pass::backward);
  const Inputs two = make_inputs(p, InputKind::normal, 2, Pass::backward);
  CHECK(one.Q.values == again.Q.values);
  CHECK(one.dO.values == again.dO.values);
  CHECK(one.Q.values != two.Q.values);
  CHECK(one.K.values != one.V.values);
  CHECK(one.Q.values != one.dO.values);

  FullProblem longer = p;
  longer.Nq = 50;  // Q has other rows now, K has not changed
  CHECK(make_inputs(longer, InputKind::normal, 1, Pass::forward).K.values == one.K.values);
}

TEST_CASE("inputs: normal has mean 0, variance 1, and the tails of a normal distribution") {
  FullProblem p = small();
  p.Nq = 2000;
  const std::vector<float> values = make_input(p, InputKind::normal, 3, InputTensor::q).values;
  const double n = static_cast<double>(values.size());  // 960,000
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, before = 0;
  for (const double x : values) {
    sum += x, squares += x * x, fourth += x * x * x * x, neighbours += x * before;
    before = x;
  }
  // Five standard deviations of each estimate.
  CHECK(std::abs(sum / n) < 5 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(fourth / n - 3) < 5 * std::sqrt(96 / n));
  CHECK(std::abs(neighbours / n) < 5 / std::sqrt(n));
}

TEST_CASE("inputs: the simple kinds") {
  const FullProblem p = small();
  const Inputs ones = make_inputs(p, InputKind::ones, 1, Pass::backward);
  CHECK(std::all_of(ones.V.values.begin(), ones.V.values.end(), [](float x) { return x == 1; }));
  CHECK(std::any_of(ones.dO.values.begin(), ones.dO.values.end(), [&](float x) { return x != ones.dO.values[0]; }));

  const Inputs ramp = make_inputs(p, InputKind::ramp, 1, Pass::forward);
  CHECK(ramp.V(1, 2, 7, 25) == doctest::Approx(7.025f));
  CHECK(ramp.Q(1, 5, 32, 39) == 1);

  const Inputs identity = make_inputs(p, InputKind::identity, 1, Pass::forward);
  CHECK(identity.K(1, 0, 40, 0) == 1);  // 40 mod d = 0
  CHECK(identity.K(1, 0, 40, 39) == 0);
  CHECK(identity.Q(0, 3, 5, 5) == 1);
}

TEST_CASE("inputs: ALiBi slopes") {
  FullProblem p = small();
  p.H = 8;
  p.Hkv = 4;
  p.bias = BiasKind::alibi;
  const HostTensor<float> slopes = make_input(p, InputKind::normal, 1, InputTensor::bias);
  CHECK(slopes.shape == bias_shape(p));
  for (int h = 0; h < p.H; ++h) CHECK(slopes(0, h, 0, 0) == std::exp2(-static_cast<float>(h + 1)));
}
