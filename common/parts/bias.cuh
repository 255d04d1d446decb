// The bias as a kernel parameter, and the heads that share a matrix of it. For the kernels in more/
// of 01, 06, 07 and 08 that take a bias or compute its gradient, and for score_rule.cuh.
#pragma once

#include "common/parts/kernel.cuh"

namespace flash {
namespace {

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

// ---- The gradient: of a matrix it is the sum over the heads that share it ----------------------

/// The batches and heads whose scores contain one matrix of the bias, and where it is in the bias.
struct SharingHeads {
  int first_b, end_b, first_h, end_h;
  int b, h;
};

/// Those of the n-th matrix.
__device__ inline SharingHeads sharing_heads(const Problem& problem, int n) {
  const int heads = problem.bias_per_head ? problem.H : 1;
  const int b = n / heads, h = n % heads;
  const bool per_b = problem.bias_per_batch, per_h = problem.bias_per_head;
  return {per_b ? b : 0, per_b ? b + 1 : problem.B, per_h ? h : 0, per_h ? h + 1 : problem.H, b, h};
}

/// How many matrices the bias has.
inline int bias_matrices(const Problem& p) {
  return (p.bias_per_batch ? p.B : 1) * (p.bias_per_head ? p.H : 1);
}

}  // namespace
}  // namespace flash
