// 04 FlashAttention-1, forward, step 4: all four tiles of Algorithm 1 in shared memory.
//
//   for every tile of K and V, for every tile of Q and O:
//     S = scale Q K^T, masked                                                   (4.1)
//     m~ = rowmax S,   P~ = exp(S - m~),   l~ = rowsum P~                       (4.2)
//     m_new = max(m, m~),   l_new = e^{m - m_new} l + e^{m~ - m_new} l~         (4.3)
//     O = (l e^{m - m_new} O + e^{m~ - m_new} P~ V) / l_new                     (4.4)
//   L = m + ln l                                                                (4.5)
//
// New since step 3: tiles of Q and O pass through shared memory, too. The block loads and stores
// them like K and V, neighbouring threads neighbouring elements, and a thread's row of Q leaves
// its registers, which makes room for d = 128. Shared memory limits the tiles: (4.6), in tiles.cuh.
// Algorithm 1 calls tiles Q_i and K_j; in the code i and j are a query and a key.
//
// Grid: one block per (batch, head). Block: one thread per row of the Q tile.
// Shared memory: tiles of K and V [Bc, Width], of Q and O [Br, Width + PAD]; Width: d, rounded up.
// Registers: a row of P~ V.
// HBM: as step 2 (4.7). The backward pass of chapter 05 reads l and m.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"
#include "04_fa1_forward/tiles.cuh"

namespace flash::fa1_forward::step_4 {
namespace {

template <int Width>
__global__ void __launch_bounds__(MAX_Br, 1)
    forward_kernel(Problem problem, Tiles tiles, Tensor<const float> Q_all,
                   Tensor<const float> K_all, Tensor<const float> V_all, Tensor<float> O_all,
                   Tensor<float> l_all, Tensor<float> m_all, Tensor<float> L_all) {
  const int head = blockIdx.x, kv_head = problem.kv_head(head);
  const Matrix<const float> Q = Q_all.head(head), K = K_all.head(kv_head), V = V_all.head(kv_head);
  const Matrix<float> O = O_all.head(head);
  const Vector<float> l = l_all.head_vector(head), m = m_all.head_vector(head);
  const int Br = tiles.Br, Bc = tiles.Bc, row = threadIdx.x;  // row: of the tile of Q

  float* const shared = dynamic_shared<float>(shared_floats(tiles, Width));
  const SharedMatrix<float> K_smem{shared, Bc, Width, Width};
  const SharedMatrix<float> V_smem{K_smem.end(), Bc, Width, Width};
  const SharedMatrix<float> Q_smem{shared + 2 * Bc * Width, Br, Width, Width + PAD};
  const SharedMatrix<float> O_smem{Q_smem.end(), Br, Width, Width + PAD};

  // Line 2: O = 0, l = 0, m = -inf. Each thread reads only what it writes here: no barrier needed.
  clear_tile<Width>(O_smem);
  for (int query0 = 0; query0 < problem.Nq; query0 += Br) {
    store_tile<Width>(O, query0, O_smem);
    if (query0 + row < problem.Nq) {
      l(query0 + row) = 0.0f;
      m(query0 + row) = -INFINITY;
    }
  }

  for (int key0 = 0; key0 < problem.Nk; key0 += Bc) {  // line 5
    load_tile<Width>(K_smem, K, key0);                 // line 6
    load_tile<Width>(V_smem, V, key0);

    // Line 7. first_query() is a multiple of Br.
    for (int query0 = problem.first_query(key0, Br); query0 < problem.Nq; query0 += Br) {
      const int i = query0 + row;
      load_tile<Width>(Q_smem, Q, query0);  // line 8
      load_tile<Width>(O_smem, O, query0);
      RowStats old_stats{-INFINITY, 0.0f};
      if (i < problem.Nq) old_stats = {m(i), l(i)};
      // Read after write: a thread reads keys, values, rows of Q and O that others have loaded.
      __syncthreads();

      // Lines 9 and 10: this thread's row, GROUP keys at a time, up to its last visible key.
      RowStats tile_stats{-INFINITY, 0.0f};  // m~, l~
      float4 PV_reg[Width / 4] = {};         // P~ V
      // The keys that it sees, counted from key0: negative, or above Bc, if the last one is
      // elsewhere.
      const int visible = i < problem.Nq ? problem.visible_keys(i) - key0 : 0;
      for (int key = 0; key < min(visible, Bc); key += GROUP) {
        float S[GROUP];  // q . k, then the scores
        dot_products<Width>(S, Q_smem, row, K_smem, key);
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {  // (4.1); keys beyond the last one are not visible either
          S[g] = key + g < visible ? problem.scale * S[g] : -INFINITY;
        }
        accumulate<Width>(tile_stats, PV_reg, S, V_smem, key);
      }

      const RowStats new_stats = merge(old_stats, tile_stats);  // line 11
      merge_output<Width>(O_smem, row, old_stats, tile_stats, new_stats, PV_reg);
      // Read after write: store_tile() reads elements of O_smem that other threads have written.
      // Write after read: the next tiles overwrite data that slower warps still read.
      __syncthreads();
      // No barrier after it: load_tile() gives each thread the elements of O that it stores here.
      store_tile<Width>(O, query0, O_smem);  // line 12
      if (i < problem.Nq) {                  // line 13
        l(i) = new_stats.l;
        m(i) = new_stats.m;
      }
    }
  }

  // (4.5); no key seen: -inf + -inf
  const Vector<float> L = L_all.head_vector(head);
  for (int i = row; i < problem.Nq; i += Br) L(i) = m(i) + logf(l(i));
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  const Tiles tiles = tiles_of(p, a.limits);
  const int width = width_of(p.d);
  const auto kernel = width == 32   ? forward_kernel<32>
                      : width == 64 ? forward_kernel<64>
                      : width == 96 ? forward_kernel<96>
                                    : forward_kernel<128>;
  launch("fa1_tiled",
         {dim3(static_cast<unsigned>(p.B * p.H)), dim3(static_cast<unsigned>(tiles.Br)),
          shared_floats(tiles, width) * sizeof(float)},
         kernel, p, tiles, view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V),
         view<float>(a.O), view<float>(a.workspace("l")), view<float>(a.workspace("m")),
         view<float>(a.L));
}

const Variant variant{.name = "tiled",
                      .idea = "Algorithm 1: four tiles in shared memory; O, l, m wait in HBM",
                      .forward = forward,
                      .workspace = workspace,
                      .refuse = refuse,
                      .row_multiple = 4,
                      .takes = plain_problem};

}  // namespace
}  // namespace flash::fa1_forward::step_4
