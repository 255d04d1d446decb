// 04 FlashAttention-1, forward, step 1: one kernel for the whole forward pass. S and P are never
// stored.
//
//   (m, l, o) of the keys so far, merged with key j, whose triple is (S_j, 1, v_j)    (3.6)
//     S_j = scale q . k_j                                                       (4.1)
//     m' = max(m, S_j)
//     l' = l exp(m - m') + exp(S_j - m')
//     o' = o exp(m - m') + exp(S_j - m') v_j
//   O = o / l,   L = m + ln l                                                   (4.5)
//
// New since 03, where a warp shared a row: a thread has a row to itself. The merge (3.4) of two
// partial rows gets its third component, o, the sum of the values under the same weights. It needs
// no second pass: when a larger score arrives, o shrinks by the factor that corrects l. A score is
// therefore used up as soon as it is known, and the three kernels of 03 become one, with a loop
// over the keys. From here on P is e^(S - m), not divided by l until the end. zero_if_empty(m) is
// the `shift` of 02 and 03.
//
// Registers of a thread: its row of Q and of o, m, l.
// Elements that threads read and write, per head. A warp's 32 threads read the same key in one
// access, so HBM sees about a 32nd of K and V. n: pairs of a query and a key that it sees (Nq Nk
// if not causal)
//   read     Q: Nq d     K, V: n d each
//   written  O: Nq d     L: Nq
// Shapes: d of 32, 64 or 96; rows of another length are padded by the host. The two rows of d = 128
// would take 256 registers, and a thread has at most 255.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"

namespace flash::fa1_forward::step_1 {
namespace {

constexpr int Br = 64;  // queries at a time: one thread per row

/// (3.6)  Adds key j with the score S to (m, l) and to o.
template <int Width>
__device__ void accumulate(RowStats& stats, float (&o_reg)[Width], float S,
                           const Matrix<const float>& V, int j) {
  const float m = fmaxf(stats.m, S);
  const float P = expf(S - zero_if_empty(m));
  // alpha rescales what was summed under the older maximum.
  const float alpha = expf(stats.m - zero_if_empty(m));
  stats = {m, stats.l * alpha + P};
#pragma unroll
  for (int c = 0; c < Width; ++c) o_reg[c] = alpha * o_reg[c] + P * V(j, c);
}

/// Grid: (blocks of rows, 1, B*H). Width: d, a constant, because an array stays in registers
/// only if every index is one: all loops over c are unrolled.
template <int Width>
__global__ void __launch_bounds__(Br)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> L_all) {
  const int i = blockIdx.x * Br + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const int head = blockIdx.z, kv_head = problem.kv_head(head);
  const Matrix<const float> Q = Q_all.head(head), K = K_all.head(kv_head), V = V_all.head(kv_head);
  const Matrix<float> O = O_all.head(head);

  float q_reg[Width];
#pragma unroll
  for (int c = 0; c < Width; ++c) q_reg[c] = Q(i, c);

  // This thread's row, a key at a time, up to the last one that it sees. All threads of a warp read
  // the same key, so that one access serves the warp.
  RowStats stats{-INFINITY, 0.0f};  // m, l
  float o_reg[Width] = {};
  for (int j = 0; j < problem.visible_keys(i); ++j) {
    float dot = 0.0f;  // q . k_j
#pragma unroll
    for (int c = 0; c < Width; ++c) dot += q_reg[c] * K(j, c);
    accumulate<Width>(stats, o_reg, problem.scale * dot, V, j);
  }

  const float inverse = stats.l == 0.0f ? 0.0f : 1.0f / stats.l;
#pragma unroll
  for (int c = 0; c < Width; ++c) O(i, c) = o_reg[c] * inverse;
  L_all.head_vector(head)(i) = stats.m + logf(stats.l);  // (4.5); no key seen: -inf + -inf
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  const auto kernel = p.d == 32   ? forward_kernel<32>
                      : p.d == 64 ? forward_kernel<64>
                                  : forward_kernel<96>;
  launch("fa1_fused", {dim3(blocks_for(p.Nq, Br), 1, static_cast<unsigned>(p.B * p.H)), dim3(Br)},
         kernel, p, view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V),
         view<float>(a.O), view<float>(a.L));
}

const Variant variant{.name = "fused",
                      .idea = "one kernel for softmax and both products: O is merged, too",
                      .forward = forward,
                      .refuse = [](const Problem& p) { return refuse_grid_beyond(p, Br); },
                      .max_head_dim = 96,
                      .row_multiple = 32,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash::fa1_forward::step_1
