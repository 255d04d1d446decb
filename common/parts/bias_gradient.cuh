// Which heads share a matrix of the bias: its gradient is the sum of theirs. For the bias gradients
// in more/ of 01, 07 and 08.
#pragma once

#include "common/parts/kernel.cuh"

namespace flash {
namespace {

/// The batches and heads whose scores contain one matrix of the bias, and where it is in the bias.
struct SharingHeads {
  int first_b, end_b, first_h, end_h;
  int b, h;
};

/// Those of the n-th matrix.
__device__ inline SharingHeads sharing_heads(const Problem& problem, int n) {
  const int heads = problem.bias_per_head ? problem.H : 1;
  const int b = n / heads, h = n % heads;
  return {problem.bias_per_batch ? b : 0,
          problem.bias_per_batch ? b + 1 : problem.B,
          problem.bias_per_head ? h : 0,
          problem.bias_per_head ? h + 1 : problem.H,
          b,
          h};
}

/// How many matrices the bias has.
inline int bias_matrices(const Problem& p) {
  return (p.bias_per_batch ? p.B : 1) * (p.bias_per_head ? p.H : 1);
}

}  // namespace
}  // namespace flash
