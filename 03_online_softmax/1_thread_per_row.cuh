// 03 online softmax, step 1: the maximum and the sum in one pass over the row.
//
//   (m, l) of the scores so far; with one more score s                                  (3.2)
//   m' = max(m, s)
//   l' = l exp(m - m') + exp(s - m')
//   P_j = exp(S_j - m) / l,   L = m + ln l                                              (3.3)
//
// Pass 2 of chapter 02 seems to need the maximum that pass 1 finds. It does not: when a larger score arrives, one factor
// corrects everything summed under the older maximum. By induction, (m, l) after the last score satisfies (2.3) and (2.4).
//
// Only softmax_kernel differs from 02: a thread owns a row, reads S twice instead of three times, writes P once.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk].  Shapes: all.
#pragma once

#include "common/parts/products.cuh"

namespace flash {
namespace {

constexpr int ROWS_PER_BLOCK = 128;  // one thread per row

/// The maximum m of a set of scores, and l = sum exp(score - m). An empty or fully masked set has (-inf, 0).
struct RowStats {
  float m;
  float l;
};

/// (3.2)  The statistics after one more score. One of the two exps is e^0 = 1, unless all scores so far are masked. A branch
/// could skip it, but the loads of the next scores would then wait for the branch.
__device__ inline RowStats extend(RowStats stats, float score) {
  const float m = fmaxf(stats.m, score);
  const float shift = m == -INFINITY ? 0.0f : m;  // only masked scores: exp(-inf - 0) = 0, not NaN
  return {m, stats.l * expf(stats.m - shift) + expf(score - shift)};
}

/// Grid: (blocks of rows, H, B).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all, Tensor<float> L_all) {
  const int b = blockIdx.z;
  const int h = blockIdx.y;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> S = S_all.head(b, h);
  const Matrix<float> P = P_all.head(b, h);

  // Pass 1: m and l together.
  RowStats stats{-INFINITY, 0.0f};
  for (int j = 0; j < problem.Nk; ++j) stats = extend(stats, S(i, j));

  // Pass 2: P. If the row sees no key, m = -inf and l = 0: subtract 0 and multiply by 0 instead, so that P = 0, not NaN.
  const float shift = stats.m == -INFINITY ? 0.0f : stats.m;
  const float inverse = stats.l == 0.0f ? 0.0f : 1.0f / stats.l;
  for (int j = 0; j < problem.Nk; ++j) P(i, j) = expf(S(i, j) - shift) * inverse;
  L_all.head_vector(b, h)(i) = shift + logf(stats.l);
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
                      .idea = "max and sum in one pass, a thread per row",
                      .forward = forward,
                      .workspace = scores_workspace,
                      .refuse = refuse_oversized_grid};

}  // namespace
}  // namespace flash
