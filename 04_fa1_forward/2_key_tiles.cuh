// 04 FlashAttention-1, forward, step 2: tiles of K and V in shared memory, and the loop over them
// outside, as in Algorithm 1 (Dao et al. 2022).
//
//   for every tile of K and V, for every query:
//     S = scale q K^T                                                           (4.1)
//     m~ = max S,   P~ = exp(S - m~),   l~ = sum P~                             (4.2)
//     m_new = max(m, m~),   l_new = e^{m - m_new} l + e^{m~ - m_new} l~         (4.3)
//     O = (l e^{m - m_new} O + e^{m~ - m_new} P~ V) / l_new                     (4.4)
//   L = m + ln l                                                                (4.5)
//
// New since step 1: a block loads K and V once for all queries of a head, not once per query, and
// keeps them in shared memory. They fit only a tile at a time, so the loop over tiles is outside,
// and a row's state (O, l, m) waits in HBM for the next tile of keys, whose own (P~ V, l~, m~) is
// then merged into it: (3.6), of two sets of keys.
//
// Grid: one block per head. Block: Br threads; each takes one of Br queries at a time.
// Shared memory: K and V, [Bc, Width] each; Width: d. Registers: a row of Q and of P~ V.
//
// HBM elements per head. R counts, over all tiles of K, the rows of Q tiles that see it
// (Nq Tc if not causal)                                                         (4.7)
//   read     K, V: Nk d each   Q, O: R d each    l, m: R + Nq each
//   written  O: (Nq + R) d     l, m: Nq + R each     L: Nq
// Shapes: d of 32 or 64; rows of another length are padded by the host. With the addresses of l and
// m, two rows of d = 96 do not fit in 255 registers.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"

namespace flash::fa1_forward::step_2 {
namespace {

constexpr int Br = 64;  // queries at a time: one thread per row
constexpr int Bc = 32;  // keys and values at a time

/// Copies rows row0, row0 + 1, ... of M to a tile. The whole block takes part: neighbouring threads
/// copy neighbouring elements. Rows beyond the last one stay as they are: no query sees them.
template <int Width>
__device__ void load_tile(float (&tile)[Bc][Width], const Matrix<const float>& M, int row0) {
  for (int e = threadIdx.x; e < min(Bc, M.rows - row0) * Width; e += Br) {
    tile[e / Width][e % Width] = M(row0 + e / Width, e % Width);
  }
}

/// (4.2)  Adds a key with the score S and the value v to (m~, l~) and to P~ V, by the online rule
/// (3.6).
template <int Width>
__device__ void accumulate(RowStats& stats, float (&PV_reg)[Width], float S,
                           const float (&v)[Width]) {
  const float m = fmaxf(stats.m, S);
  const float P = expf(S - zero_if_empty(m));
  // alpha rescales what was summed under the older maximum.
  const float alpha = expf(stats.m - zero_if_empty(m));
  stats = {m, stats.l * alpha + P};
#pragma unroll
  for (int c = 0; c < Width; ++c) PV_reg[c] = alpha * PV_reg[c] + P * v[c];
}

template <int Width>
__global__ void __launch_bounds__(Br)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> l_all,
                   Tensor<float> m_all, Tensor<float> L_all) {
  __shared__ float K_smem[Bc][Width], V_smem[Bc][Width];
  const int head = blockIdx.x, kv_head = problem.kv_head(head);
  const Matrix<const float> Q = Q_all.head(head), K = K_all.head(kv_head), V = V_all.head(kv_head);
  const Matrix<float> O = O_all.head(head);
  const Vector<float> l = l_all.head_vector(head), m = m_all.head_vector(head);

  // Line 2: O = 0, l = 0, m = -inf. A thread has the same rows in all loops: no barrier needed.
  for (int i = threadIdx.x; i < problem.Nq; i += Br) {
    for (int c = 0; c < problem.d; ++c) O(i, c) = 0.0f;
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
      float q_reg[Width];  // line 8
#pragma unroll
      for (int c = 0; c < Width; ++c) q_reg[c] = Q(i, c);

      // Lines 9 and 10: a key at a time, up to the last one of the tile that the query sees.
      RowStats tile_stats{-INFINITY, 0.0f};  // m~, l~
      float PV_reg[Width] = {};              // P~ V
      for (int key = 0; key < min(problem.visible_keys(i) - key0, Bc); ++key) {
        float dot = 0.0f;  // q . k_j
#pragma unroll
        for (int c = 0; c < Width; ++c) dot += q_reg[c] * K_smem[key][c];
        accumulate<Width>(tile_stats, PV_reg, problem.scale * dot, V_smem[key]);
      }

      // Lines 11 to 13: (4.3) and (4.4). No visible key so far: l_new = 0, O = 0.
      const RowStats old_stats{m(i), l(i)}, new_stats = merge(old_stats, tile_stats);
      const float shift = zero_if_empty(new_stats.m);
      const float inverse = new_stats.l == 0.0f ? 0.0f : 1.0f / new_stats.l;
      const float old_factor = old_stats.l * expf(old_stats.m - shift) * inverse;
      const float new_factor = expf(tile_stats.m - shift) * inverse;
#pragma unroll
      for (int c = 0; c < Width; ++c) O(i, c) = old_factor * O(i, c) + new_factor * PV_reg[c];
      l(i) = new_stats.l;
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
  launch("fa1_key_tiles", {dim3(static_cast<unsigned>(p.B * p.H)), dim3(Br)}, kernel, p,
         view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), view<float>(a.O),
         view<float>(a.workspace("l")), view<float>(a.workspace("m")), view<float>(a.L));
}

const Variant variant{.name = "key_tiles",
                      .idea = "K and V outside, tile by tile in shared memory: O, l, m wait in HBM",
                      .forward = forward,
                      .workspace = workspace,
                      .refuse = refuse,
                      .max_head_dim = 64,
                      .row_multiple = 32,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash::fa1_forward::step_2
