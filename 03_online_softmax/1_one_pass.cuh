// 03 online softmax: the maximum and the sum in one pass over the row; an associative merge
// combines the 32 partial results of a warp.
//
//   (m, l) of the scores so far; with one more score s                          (3.2)
//   m' = max(m, s)
//   l' = l exp(m - m') + exp(s - m')
//   (m, l) of the union of two sets of scores, a and b                          (3.4)
//   m = max(m_a, m_b)
//   l = l_a exp(m_a - m) + l_b exp(m_b - m)
//   P_j = exp(S_j - m) / l,   L = m + ln l                                      (3.3)
//
// New since 02: pass 2 of chapter 02 seems to need the maximum that pass 1 finds. It does not: when
// a larger score arrives, one factor corrects everything summed under the older maximum. Each lane
// runs the online pass over its own columns t, t + 32, t + 64, ... The merge is associative and
// commutative with (-inf, 0) as its neutral element, so the lanes' 32 pairs can be merged in any
// order, like a sum: five steps of two shuffles each (2.7). FlashAttention is this merge with a
// third component, the partial output O. S is read twice instead of three times, P written once.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk], 8 Nq Nk bytes per head.
#pragma once

#include "01_naive/products.cuh"
#include "common/machine/warp.cuh"

namespace flash {
namespace {

constexpr int ROWS_PER_BLOCK = 4;  // one warp per row

/// The maximum m of a set of scores, and l = sum exp(score - m). An empty or fully masked set has
/// (-inf, 0).
struct RowStats {
  float m;
  float l;
};

/// (3.2)  The statistics after one more score. One of the two exps is e^0 = 1, unless all scores so
/// far are masked. A branch could skip it, but the loads of the next scores would then wait for the
/// branch.
__device__ inline RowStats extend(RowStats stats, float score) {
  const float m = fmaxf(stats.m, score);
  const float shift = m == -INFINITY ? 0.0f : m;  // only masked scores: exp(-inf - 0) = 0, not NaN
  return {m, stats.l * expf(stats.m - shift) + expf(score - shift)};
}

/// (3.4)  The statistics of the union of two sets.
__device__ inline RowStats merge(RowStats a, RowStats b) {
  const float m = fmaxf(a.m, b.m);
  const float shift = m == -INFINITY ? 0.0f : m;  // both are empty: exp(-inf - 0) = 0, not NaN
  return {m, a.l * expf(a.m - shift) + b.l * expf(b.m - shift)};
}

/// The merge of all 32 lanes, in every lane, equal up to rounding: the shuffles of warp_max() in
/// 02/2_warp_per_row.cuh (2.7), with merge() instead of the maximum.
__device__ inline RowStats warp_merge(RowStats stats) {
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    const RowStats other{__shfl_xor_sync(ALL_LANES, stats.m, distance),
                         __shfl_xor_sync(ALL_LANES, stats.l, distance)};
    stats = merge(stats, other);
  }
  return stats;
}

/// (3.2) to (3.4)  A warp reads its row of S twice: for the maximum and the sum, and for P.
/// Grid: (blocks of rows, 1, B*H). Block: (lanes, rows).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all,
                               Tensor<float> L_all) {
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
  const int lane = threadIdx.x;
  if (i >= problem.Nq) return;  // the whole warp leaves, so no shuffle waits for it
  const Matrix<const float> S = S_all.head(blockIdx.z);
  const Matrix<float> P = P_all.head(blockIdx.z);

  // Pass 1: m and l together, first over this lane's columns, then over the row.
  RowStats stats{-INFINITY, 0.0f};
  for (int j = lane; j < problem.Nk; j += WARP) stats = extend(stats, S(i, j));
  stats = warp_merge(stats);

  // Pass 2: P. If the row sees no key, m = -inf and l = 0: subtract 0 and multiply by 0 instead, so
  // that P = 0, not NaN.
  const float shift = stats.m == -INFINITY ? 0.0f : stats.m;
  const float inverse = stats.l == 0.0f ? 0.0f : 1.0f / stats.l;
  for (int j = lane; j < problem.Nk; j += WARP) P(i, j) = expf(S(i, j) - shift) * inverse;
  if (lane == 0) L_all.head_vector(blockIdx.z)(i) = shift + logf(stats.l);
}

void forward(const Attention& a) {
  launch_scores(a);
  launch("softmax", by_rows(a.problem, ROWS_PER_BLOCK, dim3(WARP, ROWS_PER_BLOCK)), softmax_kernel,
         a.problem, view<const float>(a.workspace("S")), view<float>(a.workspace("P")),
         view<float>(a.L));
  launch_output(a);
}

const Variant variant{.name = "one_pass",
                      .idea = "max and sum in one pass, merged over a warp per row",
                      .forward = forward,
                      .workspace = pair_matrices,
                      .refuse = refuse_oversized_grid,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash
