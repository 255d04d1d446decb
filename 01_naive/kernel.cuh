// 01 naive: attention as its formula reads, every matrix written to HBM.
//
//   forward    S = scale Q K^T, masked                                          (1.1)
//              P = exp(S) / rowsum(exp(S))            softmax without the max   (1.2)
//              O = P V                                                          (1.3)
//              L = ln rowsum(exp(S))                                            (1.4)
//   backward   backward.cuh: one launch for each gradient                       (1.10) to (1.14)
//
// Three launches. The softmax gives each thread a row; the products before and after it are in
// products.cuh, which also explains the names.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk], 8 Nq Nk bytes per head.
// Without the maximum, fp32's range is too small. A score above 88.7 overflows expf(), and its P is
// NaN. If only L is above 88.7, l overflows, and P is 0. If L is below -88.7, 1 / l overflows: P is
// infinite, or NaN where a key is hidden. If all scores are below -104, each expf() is 0, and so is
// O. Chapter 02 fixes all of it.
#pragma once

#include "01_naive/backward.cuh"
#include "01_naive/products.cuh"

namespace flash {
namespace {

constexpr int ROWS_PER_BLOCK = 128;  // one thread per row

/// (1.2), (1.4)  A thread reads its row of S twice. Not coalesced: neighbours read other rows, so a
/// warp's load touches 32 sectors, until step 2 of 02. Grid: (blocks of rows, 1, B*H).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all,
                               Tensor<float> L_all) {
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> S = S_all.head(blockIdx.z);
  const Matrix<float> P = P_all.head(blockIdx.z);

  float l = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) l += expf(S(i, j));
  const float inverse = l == 0.0f ? 0.0f : 1.0f / l;  // no key, or underflow: P = 0, not 0/0
  for (int j = 0; j < problem.Nk; ++j) P(i, j) = expf(S(i, j)) * inverse;
  L_all.head_vector(blockIdx.z)(i) = logf(l);
}

void forward(const Attention& a) {
  launch_scores(a);
  launch("softmax", by_rows(a.problem, ROWS_PER_BLOCK, dim3(ROWS_PER_BLOCK)), softmax_kernel,
         a.problem, view<const float>(a.workspace("S")), view<float>(a.workspace("P")),
         view<float>(a.L));
  launch_output(a);
}

const Variant variant{.name = "naive",
                      .idea = "S and P written to HBM, softmax without the max",
                      .forward = forward,
                      .backward = backward,
                      .workspace = pair_matrices,
                      .refuse = refuse_oversized_grid,
                      .subtracts_max = false,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash
