// 02 safe softmax, step 1: the row's largest score is subtracted before exp, so that nothing overflows.
//
//   m = max_j S_j                                       (2.3)   pass 1
//   l = sum_j exp(S_j - m)                              (2.4)   pass 2
//   P_j = exp(S_j - m) / l                              (2.5)   pass 3
//   L = m + ln l                                        (2.6)
//
// The result is the same as in chapter 01: adding a constant to a row does not change its softmax (2.2). Every exponent is
// at most 0 and the largest is exactly 0, so 1 <= l <= Nk in a row that sees a key.
//
// Only softmax_kernel differs from 01; the products around it are in common/parts/products.cuh. A thread owns a row: it
// reads S three times and writes P once. Neighbouring threads read neighbouring rows, Nk elements apart: each load of a
// warp touches 32 sectors, 1,024 bytes, to use 128. L1 has the other bytes for the next seven iterations, but must look up 32
// lines per load instead of one.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk].  Shapes: all.
#pragma once

#include "common/parts/products.cuh"

namespace flash {
namespace {

constexpr int ROWS_PER_BLOCK = 128;  // one thread per row

/// Grid: (blocks of rows, H, B).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all, Tensor<float> L_all) {
  const int b = blockIdx.z;
  const int h = blockIdx.y;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> S = S_all.head(b, h);
  const Matrix<float> P = P_all.head(b, h);

  // Pass 1: m. If the row sees no key, m = -inf, and S - m below would be (-inf) - (-inf) = NaN: subtract 0 instead.
  float m = -INFINITY;
  for (int j = 0; j < problem.Nk; ++j) m = fmaxf(m, S(i, j));
  const float shift = m == -INFINITY ? 0.0f : m;

  // Pass 2: l.
  float l = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) l += expf(S(i, j) - shift);

  // Pass 3: P.
  const float inverse = l == 0.0f ? 0.0f : 1.0f / l;  // no visible key: P = 0, not 0/0
  for (int j = 0; j < problem.Nk; ++j) P(i, j) = expf(S(i, j) - shift) * inverse;
  L_all.head_vector(b, h)(i) = shift + logf(l);
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  launch_scores(a);
  launch("softmax",
         {dim3(blocks_for(p.Nq, ROWS_PER_BLOCK), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B)), dim3(ROWS_PER_BLOCK)},
         softmax_kernel, p, view<const float>(a.workspace("S")), view<float>(a.workspace("P")), view<float>(a.L));
  launch_output(a);
}

const Variant variant{.name = "thread_per_row",
                      .idea = "max subtracted, three passes, a thread per row",
                      .forward = forward,
                      .workspace = scores_workspace,
                      .refuse = refuse_oversized_grid};

}  // namespace
}  // namespace flash
