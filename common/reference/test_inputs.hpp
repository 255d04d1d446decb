// Problems and random inputs for the tests of the reference.
#pragma once

#include "common/attention/option_table.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/machine/isa/float16.hpp"

#include <limits>
#include <random>

namespace flash::test {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Standard normal inputs that the problem's dtype represents, and biases or slopes.
template <class T>
InputsOf<T> random_inputs(const FullProblem& p, Pass pass) {
  std::mt19937 random(1);
  const auto tensor = [&](const Extents& shape, Dtype dtype) {
    std::normal_distribution<float> normal;
    HostTensor<T> made(shape);
    for (T& value : made.values) value = round_to(dtype, normal(random));
    return made;
  };
  InputsOf<T> inputs;
  inputs.Q = tensor(shape_of(p, Role::q), p.dtype);
  inputs.K = tensor(shape_of(p, Role::k), p.dtype);
  inputs.V = tensor(shape_of(p, Role::v), p.dtype);
  if (pass == Pass::backward) inputs.dO = tensor(shape_of(p, Role::o), p.dtype);
  if (p.bias != BiasKind::none) inputs.bias = tensor(bias_shape(p), Dtype::fp32);
  return inputs;
}

inline FullProblem problem_of(int B, int H, int Hkv, int Nq, int Nk, int d) {
  FullProblem p;
  static_cast<Problem&>(p) = {.B = B, .H = H, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = d};
  p.scale = default_scale(d);
  return p;
}

}  // namespace flash::test
