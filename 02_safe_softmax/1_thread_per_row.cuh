// 02 safe softmax, step 1: the row's largest score is subtracted before exp: nothing overflows.
//
//   m = max_j S_j                                                               (2.3)   pass 1
//   l = sum_j exp(S_j - m)                                                      (2.4)   pass 2
//   P_j = exp(S_j - m) / l                                                      (2.5)   pass 3
//   L = m + ln l                                                                (2.6)
//
// The result is the same as in chapter 01: adding a constant to a row does not change its softmax
// (2.2). Every exponent is at most 0 and the largest is exactly 0, so 1 <= l <= Nk in a row that
// sees a key, if its scores are finite: no exp, no sum and no 1 / l overflows.
//
// Three launches, of which only the softmax is new. A thread owns a row: it reads S three times and
// writes P once. Neighbouring threads read neighbouring rows, Nk elements apart: from Nk = 8 on
// each load of a warp touches 32 sectors, 1,024 bytes, to use 128. L1 has the other bytes for the
// next seven iterations, but from Nk = 32 on must look up 32 lines per load instead of one.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk], 8 Nq Nk bytes per head.
#pragma once

#include "01_naive/products.cuh"

namespace flash {
namespace {

constexpr int ROWS_PER_BLOCK = 128;  // one thread per row

/// (2.3) to (2.6)  A thread reads its row of S three times: for the maximum, the sum, and P.
/// Grid: (blocks of rows, 1, B*H).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all,
                               Tensor<float> L_all) {
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> S = S_all.head(blockIdx.z);
  const Matrix<float> P = P_all.head(blockIdx.z);

  // Pass 1: m. If the row sees no key, m = -inf, and S - m below would be (-inf) - (-inf) = NaN:
  // subtract 0 instead.
  float m = -INFINITY;
  for (int j = 0; j < problem.Nk; ++j) m = fmaxf(m, S(i, j));
  const float shift = m == -INFINITY ? 0.0f : m;

  // Pass 2: l.
  float l = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) l += expf(S(i, j) - shift);

  // Pass 3: P.
  const float inverse = l == 0.0f ? 0.0f : 1.0f / l;  // no visible key: P = 0, not 0/0
  for (int j = 0; j < problem.Nk; ++j) P(i, j) = expf(S(i, j) - shift) * inverse;
  L_all.head_vector(blockIdx.z)(i) = shift + logf(l);
}

void forward(const Attention& a) {
  launch_scores(a);
  launch("softmax", by_rows(a.problem, ROWS_PER_BLOCK, dim3(ROWS_PER_BLOCK)), softmax_kernel,
         a.problem, view<const float>(a.workspace("S")), view<float>(a.workspace("P")),
         view<float>(a.L));
  launch_output(a);
}

const Variant variant{.name = "thread_per_row",
                      .idea = "max subtracted, three passes, a thread per row",
                      .forward = forward,
                      .workspace = pair_matrices,
                      .refuse = refuse_oversized_grid,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash
