// The bias as a kernel parameter, and the score as the problem defines it: scale * q.k + bias,
// masked. For the kernels in more/ of 01, the decode steps of 06 and 08, and score_rule.cuh.
#pragma once

#include "common/parts/kernel.cuh"

namespace flash {
#ifdef __CUDACC__
inline namespace gpu {
#else
inline namespace simt {
#endif

/// The bias of a problem, as a kernel parameter.
struct Bias {
  BiasKind kind;
  int diagonal;  ///< Nk - Nq: under a causal mask i + diagonal is the last key that query i sees
  /// [B, H, Nq, Nk] with strides of 0 where it is broadcast; ALiBi slopes [B, H, 1, 1].
  Tensor<const float> values;

  /// What is added to the scaled score of query i and key j. ALiBi (Press et al. 2022): -slope *
  /// distance.
  __device__ float operator()(int b, int h, int i, int j) const {
    if (kind == BiasKind::none) return 0.0f;
    const Matrix<const float> head = values.head(b, h);
    if (kind == BiasKind::alibi) {
      const int distance = i + diagonal - j;
      const float slope = head(0, 0);
      return -slope * static_cast<float>(distance < 0 ? -distance : distance);
    }
    return head(i, j);  // a vector has a row stride of 0
  }
};

inline Bias bias_of(const Attention& a) {
  return {a.problem.bias, a.problem.Nk - a.problem.Nq, view<const float>(a.bias)};
}

/// S(i, j) = scale * (q_i . k_j) + bias(i, j), or -inf where query i does not see key j.
__device__ inline float score(const Problem& problem, const Bias& bias, int b, int h, int i, int j,
                              float dot) {
  if (!problem.visible(i, j)) return -INFINITY;
  return problem.scale * dot + bias(b, h, i, j);
}

/// (9.7)  A scaled score becomes c tanh(s / c), which stays between -c and c.
__device__ inline float capped(float s, float c) { return c * tanhf(s / c); }

/// (9.8)  Its derivative, of the capped score.
__device__ inline float slope_of_cap(float capped, float c) {
  return 1.0f - capped / c * (capped / c);
}

/// The score with all options. The cap comes before the bias and the mask: after them it would lift
/// -inf to -c.
__device__ inline float score(const OptionsProblem& problem, const Bias& bias, int b, int h, int i,
                              int j, float dot) {
  if (!problem.visible(i, j)) return -INFINITY;
  const float s = problem.scale * dot;
  return (problem.softcap == 0.0f ? s : capped(s, problem.softcap)) + bias(b, h, i, j);
}

}  // namespace
}  // namespace flash
