// 01 naive: the score as the problem defines it, of one pair. For options.cuh and lorentz.cuh.
#pragma once

#include "common/parts/bias.cuh"

namespace flash {
namespace {

/// (9.7)  A scaled score becomes c tanh(s / c), which stays between -c and c.
__device__ inline float capped(float s, float c) { return c * tanhf(s / c); }

/// (9.8)  Its derivative, of the capped score.
__device__ inline float slope_of_cap(float capped, float c) {
  return 1.0f - capped / c * (capped / c);
}

/// S(i, j) = scale * (q_i . k_j), capped, + bias(i, j), or -inf where query i does not see key j.
/// The cap comes before the bias and the mask: after them it would lift -inf to -c.
__device__ inline float score(const OptionsProblem& problem, const Bias& bias, int b, int h, int i,
                              int j, float dot) {
  if (!problem.visible(i, j)) return -INFINITY;
  const float s = problem.scale * dot;
  return (problem.softcap == 0.0f ? s : capped(s, problem.softcap)) + bias(b, h, i, j);
}

}  // namespace
}  // namespace flash
