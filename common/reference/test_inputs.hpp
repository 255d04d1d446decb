// Problems and random inputs for the tests of the reference.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/attention/placement.hpp"
#include "common/machine/isa/float16.hpp"

#include <limits>
#include <random>

namespace flash::test {

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class T>
HostTensor<T> random_tensor(const std::array<std::int64_t, 4>& shape, Dtype dtype, std::mt19937& random) {
  std::normal_distribution<float> normal;
  HostTensor<T> tensor(shape);
  for (T& value : tensor.values) value = round_to(dtype, normal(random));
  return tensor;
}

/// Standard normal inputs that the problem's dtype represents, and biases or slopes.
template <class T>
InputsOf<T> random_inputs(const FullProblem& p, Pass pass, unsigned seed = 1) {
  std::mt19937 random(seed);
  InputsOf<T> inputs;
  inputs.Q = random_tensor<T>(shape_of(p, Role::q), p.dtype, random);
  inputs.K = random_tensor<T>(shape_of(p, Role::k), p.dtype, random);
  inputs.V = random_tensor<T>(shape_of(p, Role::v), p.dtype, random);
  if (pass == Pass::backward) inputs.dO = random_tensor<T>(shape_of(p, Role::o), p.dtype, random);
  if (p.bias != BiasKind::none) inputs.bias = random_tensor<T>(bias_shape(p), Dtype::fp32, random);
  return inputs;
}

inline FullProblem make_problem(int B, int H, int Hkv, int Nq, int Nk, int d) {
  FullProblem p;
  static_cast<Problem&>(p) = {.B = B, .H = H, .Hkv = Hkv, .Nq = Nq, .Nk = Nk, .d = d};
  p.scale = default_scale(d);
  return p;
}

}  // namespace flash::test
