// 05 FlashAttention-1, backward, step 1: Algorithm 4 of Dao et al. 2022. No matrix [Nq, Nk] is ever
// written to HBM.
//
//   forward line        its derivatives
//   P = exp(S - m) / l  recomputed from Q, K, l and m               (5.7)
//   O = P V             dV = P^T dO         dP = dO V^T             (5.1), (5.2)
//   P = softmax(S)      dS = P o (dP - D)   D = rowsum(dO o O)      (5.3), (5.4)
//   S = scale Q K^T     dQ = scale dS K     dK = scale dS^T Q       (5.5), (5.6)
//
// The loops are the same as in 04/4_tiled.cuh: tiles of K and V outside, of Q inside, and between
// them one over the query heads that share a key/value head. dK, dV of the outer tile accumulate in
// shared memory; dQ of the inner one, where 04 has O, is read from HBM and written back. Phases A
// and B are 04's two products; C, the transposed ones, is new. load_tile_ahead() is 04's
// load_tile() with eight loads in flight (tiles.cuh), already in step 1, as a block has only 4
// warps and an SM to itself. D is computed for every tile of K; 07 does it once.
//
// Grid: B * Hkv blocks. A block owns a key/value head and handles every query head of its group, so
// that only this block adds to dK and dV: no atomics, and each run gives the same bits.
// Block: Br threads. A thread owns a row of the Q tile for P, dS (phase A) and dQ (phase B), and a
// row of the K tile for dV or dK (phase C), for which it reads a column of P or dS.
//
// HBM elements per query head. R counts, over all tiles j, the rows of Q tiles that see tile j
// (Nq Tc if not causal)                                                                    (5.9)
//   read   Q, O, dO: R d each   l, m: R each   dQ: R d     written   dQ: (Nq + R) d
// and per key/value head: K, V read, dK, dV written, Nk d each.
// Shared memory (5.8): 4 tiles [Bc, Width], 2 [Br, Width], 2 [Br, Bc]; 204 KiB at d = 64 on sm_90.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"
#include "05_fa1_backward/tiles.cuh"

namespace flash::fa1_backward::step_1 {
namespace {

using fa1_forward::add_dot, fa1_forward::add_scaled, fa1_forward::clear_tile,
    fa1_forward::read_four, fa1_forward::store_tile, fa1_forward::write_four;

/// (5.4)  D_i = sum_c dO_ic O_ic. O is needed only here, so the thread that owns the row reads it
/// straight from HBM.
template <int Width>
__device__ float D_of_row(const SharedMatrix<float>& dO_smem, int row, const Matrix<const float>& O,
                          int i) {
  float D = 0.0f;
#pragma unroll 8
  for (int c = 0; c < Width; c += 4)
    D = add_dot(D, read_four(O, i, c), dO_smem.as<const float4>(row, c));
  return D;
}

/// Phase A, a row of the Q tile, of which the first `visible` keys of the K tile are seen:
/// dP = dO V^T (5.2),  P = exp(S - m)/l (5.7),  dS = P o (dP - D) (5.3), to shared memory.
template <int Width>
__device__ void store_P_and_dS(const SharedTiles& smem, int row, int visible, float scale, float m,
                               float one_over_l, float D) {
  for (int key = 0; key < smem.K.rows; ++key) {  // all threads read the same: one access per warp
    float qk = 0.0f, dP = 0.0f;
    for (int c = 0; c < Width; c += 4) {
      qk = add_dot(qk, smem.Q.as<const float4>(row, c), smem.K.as<const float4>(key, c));
      dP = add_dot(dP, smem.dO.as<const float4>(row, c), smem.V.as<const float4>(key, c));
    }
    const float P = key < visible ? expf(scale * qk - m) * one_over_l : 0.0f;
    smem.P(row, key) = P;
    smem.dS(row, key) = P * (dP - D);
  }
}

/// (5.5)  Phase B, a row of the Q tile:  dQ_i += scale (dS_i K), in HBM. Not coalesced, as a thread
/// reads a row: staging dQ, as 04 does O, would take another tile. Each tile is summed separately,
/// as in phase C: a single chain of additions over all tiles would lose two more bits
/// (docs/reference/numerics.md, the order of additions).
template <int Width>
__device__ void add_to_dQ(const Matrix<float>& dQ, int i, float scale,
                          const SharedMatrix<float>& dS_smem, int row,
                          const SharedMatrix<float>& K_smem) {
  for (int c = 0; c < Width; c += 4) {
    float4 sum{};
    for (int key = 0; key < K_smem.rows; ++key) {
      sum = add_scaled(sum, dS_smem(row, key), K_smem.as<const float4>(key, c));
    }
    write_four(dQ, i, c, add_scaled(read_four(dQ, i, c), scale, sum));
  }
}

/// Phase C, row `key` of the K tile:  dX_j += factor sum_i A_ij Y_i. With dX = dV, A = P, Y = dO
/// and factor 1 it comes from O = P V (5.1); with dX = dK, A = dS, Y = Q and factor scale from
/// S = scale Q K^T (5.6).
template <int Width>
__device__ void add_to_key_gradient(const SharedMatrix<float>& dX, int key, float factor,
                                    const SharedMatrix<float>& A, const SharedMatrix<float>& Y) {
  for (int c = 0; c < Width; c += 4) {
    float4 sum{};
    for (int row = 0; row < A.rows; ++row) {  // neighbouring threads read neighbouring columns of A
      sum = add_scaled(sum, A(row, key), Y.as<const float4>(row, c));
    }
    dX.as<float4>(key, c) = add_scaled(dX.as<const float4>(key, c), factor, sum);
  }
}

/// Grid: B*Hkv. Block: Br.
template <int Width>
__global__ void __launch_bounds__(MAX_Br, 1)
    backward_kernel(Problem problem, Tiles tiles, Tensor<const float> Q_all,
                    Tensor<const float> K_all, Tensor<const float> V_all, Tensor<const float> O_all,
                    Tensor<const float> l_all, Tensor<const float> m_all,
                    Tensor<const float> dO_all, Tensor<float> dQ_all, Tensor<float> dK_all,
                    Tensor<float> dV_all) {
  const int kv_head = blockIdx.x, first_head = kv_head * problem.group_size();
  const int end_head = first_head + problem.group_size();
  const Matrix<const float> K = K_all.head(kv_head), V = V_all.head(kv_head);
  const int Br = tiles.Br, Bc = tiles.Bc;
  const int row = threadIdx.x;  // of the Q tile; in phase C a thread has a key, a row of the K tile

  const SharedTiles smem = shared_tiles<Width>(tiles);

  // Line 5: dQ = 0. The first barrier below separates these writes from the first reads.
  clear_tile<Width>(smem.Q);
  for (int head = first_head; head < end_head; ++head) {
    for (int query0 = 0; query0 < problem.Nq; query0 += Br) {
      store_tile<Width>(dQ_all.head(head), query0, smem.Q);
    }
  }

  for (int key0 = 0; key0 < problem.Nk; key0 += Bc) {  // line 6
    load_tile_ahead<Width>(smem.K, K, key0);           // line 7
    load_tile_ahead<Width>(smem.V, V, key0);
    clear_tile<Width>(smem.dK);  // line 8
    clear_tile<Width>(smem.dV);

    for (int head = first_head; head < end_head; ++head) {
      // Line 9. first_query() is a multiple of Br.
      for (int query0 = problem.first_query(key0, Br); query0 < problem.Nq; query0 += Br) {
        const int i = query0 + row;
        load_tile_ahead<Width>(smem.Q, Q_all.head(head), query0);  // line 10
        load_tile_ahead<Width>(smem.dO, dO_all.head(head), query0);
        // Read after write: tiles that others have loaded, and zeros that they have written.
        __syncthreads();

        // Phase A: S (line 11), mask (12), P (13), dP (17), D (19), dS (20). If the row sees no
        // key, l = 0, m = -inf: P = 0.
        int visible = 0;
        float m = 0.0f, l = 0.0f, D = 0.0f;
        if (i < problem.Nq) {
          visible = problem.visible_keys(i) - key0;
          m = zero_if_empty(m_all.head_vector(head)(i)), l = l_all.head_vector(head)(i);
          D = D_of_row<Width>(smem.dO, row, O_all.head(head), i);
        }
        const float one_over_l = l == 0.0f ? 0.0f : 1.0f / l;
        store_P_and_dS<Width>(smem, row, visible, problem.scale, m, one_over_l, D);

        // Line 21, phase B. A thread reads only the row of dS that it has just written.
        if (i < problem.Nq) {
          add_to_dQ<Width>(dQ_all.head(head), i, problem.scale, smem.dS, row, smem.K);
        }
        // Read after write: a column of P or dS has an element from every thread.
        __syncthreads();

        // Lines 16 and 22, phase C: threads 0 .. Bc - 1 do dV += P^T dO, threads Bc .. 2 Bc - 1
        // dK += scale dS^T Q, by the same instructions, since a warp may have threads of both
        // kinds.
        if (row < 2 * Bc) {
          const bool is_dV = row < Bc;
          const SharedMatrix<float> dV_or_dK = is_dV ? smem.dV : smem.dK;
          const SharedMatrix<float> P_or_dS = is_dV ? smem.P : smem.dS;
          const SharedMatrix<float> dO_or_Q = is_dV ? smem.dO : smem.Q;
          add_to_key_gradient<Width>(dV_or_dK, is_dV ? row : row - Bc, is_dV ? 1.0f : problem.scale,
                                     P_or_dS, dO_or_Q);
        }
        // Write after read: the next tiles overwrite data still being read.
        // Read after write: line 24 stores what other threads have summed.
        __syncthreads();
      }
    }

    // Line 24. A thread stores the same elements that it zeroes for the next K tile: no barrier is
    // needed in between.
    store_tile<Width>(dK_all.head(kv_head), key0, smem.dK);
    store_tile<Width>(dV_all.head(kv_head), key0, smem.dV);
  }
}

/// Runs after the forward pass, which left O in its tensor and l and m in their workspaces.
void backward(const Attention& a) {
  const Problem& p = a.problem;
  const Tiles tiles = tiles_of(p, a.limits);
  const int width = width_of(p.d);
  const auto kernel = width == 32   ? backward_kernel<32>
                      : width == 64 ? backward_kernel<64>
                      : width == 96 ? backward_kernel<96>
                                    : backward_kernel<128>;
  launch("fa1_phases",
         {dim3(static_cast<unsigned>(p.B * p.Hkv)), dim3(static_cast<unsigned>(tiles.Br)),
          static_cast<std::size_t>(shared_floats(tiles, width)) * sizeof(float)},
         kernel, p, tiles, view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V),
         view<const float>(a.O), view<const float>(a.workspace("l")),
         view<const float>(a.workspace("m")), view<const float>(a.dO), view<float>(a.dQ),
         view<float>(a.dK), view<float>(a.dV));
}

const Variant variant{
    .name = "phases",
    .idea = "Algorithm 4: P recomputed from l and m, dK and dV in shared memory, dQ through HBM",
    .backward = backward,
    .row_multiple = 4,
    .takes = plain_problem};

}  // namespace
}  // namespace flash::fa1_backward::step_1
