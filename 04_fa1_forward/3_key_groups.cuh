// 04 FlashAttention-1, forward, step 3: eight keys at a time.
//
//   for every tile of K and V, for every query:
//     S = scale q K^T                                                           (4.1)
//     m~ = max S,   P~ = exp(S - m~),   l~ = sum P~                             (4.2)
//     m_new = max(m, m~),   l_new = e^{m - m_new} l + e^{m~ - m_new} l~         (4.3)
//     O = (l e^{m - m_new} O + e^{m~ - m_new} P~ V) / l_new                     (4.4)
//   L = m + ln l                                                                (4.5)
//
// New since step 2: a thread takes GROUP keys at a time, four columns of each per access (float4).
// Their dot products are independent chains of additions, and P~ V is rescaled once per group, not
// once per key. accumulate(), for eight keys, and load_tile() move to thread_rows.cuh, which step 4
// and stages 05 and 06 share. load_tile() now writes zeros beyond the last key, where a group may
// reach: 0 times a stale NaN is NaN.
//
// Grid, block, shared memory, registers, HBM (4.7), shapes: as step 2.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"

namespace flash::fa1_forward::step_3 {
namespace {

constexpr int Br = 64;  // queries at a time: one thread per row
constexpr int Bc = 32;  // keys and values at a time

template <int Width>
__global__ void __launch_bounds__(Br)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> l_all,
                   Tensor<float> m_all, Tensor<float> L_all) {
  __shared__ __align__(16) float K_tile[Bc * Width], V_tile[Bc * Width];
  const SharedMatrix<float> K_smem{K_tile, Bc, Width, Width}, V_smem{V_tile, Bc, Width, Width};
  const int head = blockIdx.x, kv_head = problem.kv_head(head);
  const Matrix<const float> Q = Q_all.head(head), K = K_all.head(kv_head), V = V_all.head(kv_head);
  const Matrix<float> O = O_all.head(head);
  const Vector<float> l = l_all.head_vector(head), m = m_all.head_vector(head);

  // Line 2: O = 0, l = 0, m = -inf. A thread has the same rows in all loops: no barrier needed.
  for (int i = threadIdx.x; i < problem.Nq; i += Br) {
    for (int c = 0; c < Width; c += 4) O.as<float4>(i, c) = float4{};
    l(i) = 0.0f;
    m(i) = -INFINITY;
  }

  for (int key0 = 0; key0 < problem.Nk; key0 += Bc) {  // line 5
    load_tile<Width>(K_smem, K, key0);                 // line 6
    load_tile<Width>(V_smem, V, key0);
    // Read after write: a thread reads keys and values that other threads have loaded.
    __syncthreads();

    // Line 7. first_query() is a multiple of Br.
    for (int i = problem.first_query(key0, Br) + threadIdx.x; i < problem.Nq; i += Br) {
      float4 q_reg[Width / 4];  // line 8
#pragma unroll
      for (int c = 0; c < Width / 4; ++c) q_reg[c] = Q.as<const float4>(i, 4 * c);
      const RowStats old_stats{m(i), l(i)};  // early: they arrive during the products

      // Lines 9 and 10: GROUP keys at a time, up to the last one of the tile that the query sees.
      RowStats tile_stats{-INFINITY, 0.0f};  // m~, l~
      float4 PV_reg[Width / 4] = {};         // P~ V
      const int visible = problem.visible_keys(i) - key0;
      for (int key = 0; key < min(visible, Bc); key += GROUP) {
        float S[GROUP] = {};  // q . k, then the scores
#pragma unroll
        for (int c = 0; c < Width / 4; ++c) {
#pragma unroll
          for (int g = 0; g < GROUP; ++g)
            S[g] = add_dot(S[g], q_reg[c], K_smem.as<const float4>(key + g, 4 * c));
        }
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {  // (4.1); keys beyond the last one are not visible either
          S[g] = key + g < visible ? problem.scale * S[g] : -INFINITY;
        }
        accumulate<Width>(tile_stats, PV_reg, S, V_smem, key);
      }

      const RowStats new_stats = merge(old_stats, tile_stats);              // line 11
      merge_output<Width>(O, i, old_stats, tile_stats, new_stats, PV_reg);  // line 12
      l(i) = new_stats.l;                                                   // line 13
      m(i) = new_stats.m;
    }
    // Write after read: the next tiles overwrite data that slower warps still read.
    __syncthreads();
  }

  // (4.5); no key seen: -inf + -inf
  const Vector<float> L = L_all.head_vector(head);
  for (int i = threadIdx.x; i < problem.Nq; i += Br) L(i) = m(i) + logf(l(i));
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  const auto kernel = p.d == 32 ? forward_kernel<32> : forward_kernel<64>;
  launch("fa1_key_groups", {dim3(static_cast<unsigned>(p.B * p.H)), dim3(Br)}, kernel, p,
         view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), view<float>(a.O),
         view<float>(a.workspace("l")), view<float>(a.workspace("m")), view<float>(a.L));
}

const Variant variant{.name = "key_groups",
                      .idea = "eight keys at a time, four columns per access",
                      .forward = forward,
                      .workspace = workspace,
                      .refuse = refuse,
                      .max_head_dim = 64,
                      .row_multiple = 32,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash::fa1_forward::step_3
