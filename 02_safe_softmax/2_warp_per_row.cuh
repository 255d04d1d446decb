// 02 safe softmax, step 2: a warp owns a row, so that neighbouring threads read neighbouring
// elements.
//
//   m = max_j S_j                                                               (2.3)   pass 1
//   l = sum_j exp(S_j - m)                                                      (2.4)   pass 2
//   P_j = exp(S_j - m) / l                                                      (2.5)   pass 3
//   L = m + ln l                                                                (2.6)
//
// New since step 1: a warp reads its row together. Lane t takes the columns t, t + 32, t + 64, ...:
// one load of the warp touches four sectors, or five where a row begins within one, instead of 32.
// Each lane then holds the max or sum of its columns; five shuffles combine the 32 partial results,
// in every lane (2.7). S is read three times, P written once: the same bytes as step 1, in an
// eighth of the sectors.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk], 8 Nq Nk bytes per head.
#pragma once

#include "01_naive/products.cuh"
#include "common/machine/warp.cuh"

namespace flash {
namespace {

constexpr int ROWS_PER_BLOCK = 4;  // one warp per row

/// The maximum over the warp, in every lane (2.7). After a step each lane holds the maximum of
/// 32 / distance lanes.
__device__ inline float warp_max(float value) {
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
  }
  return value;
}

/// The sum over the warp, in every lane: both lanes of a pair add the same two values, so all lanes
/// end with the same bits.
__device__ inline float warp_sum(float value) {
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(ALL_LANES, value, distance);
  }
  return value;
}

/// (2.3) to (2.6)  A warp reads its row of S three times: for the maximum, the sum, and P.
/// Grid: (blocks of rows, 1, B*H). Block: (lanes, rows).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all,
                               Tensor<float> L_all) {
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
  const int lane = threadIdx.x;
  if (i >= problem.Nq) return;  // the whole warp leaves, so no shuffle waits for it
  const Matrix<const float> S = S_all.head(blockIdx.z);
  const Matrix<float> P = P_all.head(blockIdx.z);

  // Pass 1: m. If the row sees no key, m = -inf, and S - m below would be (-inf) - (-inf) = NaN:
  // subtract 0 instead.
  float m = -INFINITY;
  for (int j = lane; j < problem.Nk; j += WARP) m = fmaxf(m, S(i, j));
  m = warp_max(m);
  const float shift = m == -INFINITY ? 0.0f : m;

  // Pass 2: l.
  float l = 0.0f;
  for (int j = lane; j < problem.Nk; j += WARP) l += expf(S(i, j) - shift);
  l = warp_sum(l);

  // Pass 3: P.
  const float inverse = l == 0.0f ? 0.0f : 1.0f / l;  // no visible key: P = 0, not 0/0
  for (int j = lane; j < problem.Nk; j += WARP) P(i, j) = expf(S(i, j) - shift) * inverse;
  if (lane == 0) L_all.head_vector(blockIdx.z)(i) = shift + logf(l);
}

void forward(const Attention& a) {
  launch_scores(a);
  launch("softmax", by_rows(a.problem, ROWS_PER_BLOCK, dim3(WARP, ROWS_PER_BLOCK)), softmax_kernel,
         a.problem, view<const float>(a.workspace("S")), view<float>(a.workspace("P")),
         view<float>(a.L));
  launch_output(a);
}

const Variant variant{.name = "warp_per_row",
                      .idea = "max subtracted, three passes, a warp per row",
                      .forward = forward,
                      .workspace = pair_matrices,
                      .refuse = refuse_oversized_grid,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash
