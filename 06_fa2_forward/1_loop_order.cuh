// 06 FlashAttention-2, forward, step 1: the loops swapped (Dao 2023, Algorithm 1).
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     S = scale Q_i K_j^T, masked                           [Br, d] x [d, Bc]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                 (6.2)
//     P = e^(S - m_new),   l = alpha l + rowsum P                                       (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = m + ln l                                                           (6.5)
//
// New since 04: a thread keeps its row from the first key to the last. O, m and l stay in registers
// instead of HBM, O is divided by l once at the end, and only L is stored. Tiles of Q are
// independent, so each gets a block: the grid grows with the sequence length, whereas 04 has one
// block per head. Tile sizes are template parameters, with a kernel for each line of a table in
// shapes.hpp; start_one_of() picks one (common/parts/compiled_shapes.hpp).
//
// Grid: Tr*B*H. Block: one thread per row of the Q tile, which takes GROUP keys at a time.
// Shared memory: Q_i [Br, Width], K_j, V_j [Bc, Width], rows padded. Registers: a row of O, its m,
// l.
// HBM elements per head. R counts, over all tiles i, the rows of K tiles that tile i sees
// (Nk Tr if not causal)                                                                 (6.6)
//   read     Q: Nq d    K, V: R d each
//   written  O: Nq d    L: Nq
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"
#include "06_fa2_forward/shapes.hpp"
#include "06_fa2_forward/tiles.cuh"

namespace flash::fa2_forward::step_1 {
namespace {

using fa1_forward::add_scaled, fa1_forward::dot_products, fa1_forward::GROUP, fa1_forward::PAD,
    fa1_forward::scaled;

/// The tile sizes of one compiled kernel. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int THREADS = Br;
  static constexpr int STRIDE = Width + PAD;
  static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * STRIDE;

  static_assert(Bc % GROUP == 0 && Width % 32 == 0, "whole groups of keys, whole float4");
};

/// (6.2) to (6.4)  Adds GROUP more scores of a row to m, l and O.
template <int Width>
__device__ void accumulate(float& m, float& l, float4 (&O_reg)[Width / 4], const float (&S)[GROUP],
                           const SharedMatrix<float>& V_smem, int key) {
  float m_new = m;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) m_new = fmaxf(m_new, S[g]);
  // alpha rescales what was summed under the older maximum.
  const float alpha = expf(m - zero_if_empty(m_new));
  float P[GROUP];
  float sum = 0.0f;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    P[g] = expf(S[g] - zero_if_empty(m_new));
    sum += P[g];
  }
  m = m_new;
  l = alpha * l + sum;
#pragma unroll
  for (int c = 0; c < Width / 4; ++c) {
    float4 o = scaled(alpha, O_reg[c]);
#pragma unroll
    for (int g = 0; g < GROUP; ++g)
      o = add_scaled(o, P[g], V_smem.as<const float4>(key + g, 4 * c));
    O_reg[c] = o;
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> L_all) {
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int h = blockIdx.x / Tr % problem.H, b = blockIdx.x / Tr / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Q_smem{shared, Shape::Br, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> K_smem{Q_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};

  // 1. Load the tile of Q, once; O = 0, l = 0, m = -inf.
  load_tile<Shape::Width>(Q_smem, Q_all.head(b, h), query0);
  float4 O_reg[Shape::Width / 4] = {};  // a row of O, not normalised
  float m = -INFINITY, l = 0.0f;
  // Write after write: a tile that sees no key goes straight to phase 3, which stages O in Q's
  // buffer.
  __syncthreads();

  // 2. The tiles of K and V, up to the last key visible to the last row of this tile.
  const int row = threadIdx.x, i = query0 + row;
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    load_tile<Shape::Width>(K_smem, K, key0);
    load_tile<Shape::Width>(V_smem, V, key0);
    // Read after write: a thread reads rows of Q, K and V that other threads have loaded.
    __syncthreads();

    // This thread's row of the tile, GROUP keys at a time, up to its last visible key.
    const int visible = i < problem.Nq ? problem.visible_keys(i) - key0 : 0;
    for (int key = 0; key < min(visible, Shape::Bc); key += GROUP) {
      float S[GROUP];  // q . k, then the scores
      dot_products<Shape::Width>(S, Q_smem, row, K_smem, key);
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {  // (6.1); keys beyond the last one are not visible either
        S[g] = key + g < visible ? problem.scale * S[g] : -INFINITY;
      }
      accumulate<Shape::Width>(m, l, O_reg, S, V_smem, key);
    }
    // Write after read: the next tiles overwrite data that slower threads still read.
    __syncthreads();
  }

  // 3. (6.5). A row that saw no key has l = 0: O stays 0, L = -inf + -inf. O is staged in Q's
  // buffer for coalesced stores; only this thread reads its row of Q, so it may overwrite it.
  const float inverse = l == 0.0f ? 0.0f : 1.0f / l;
#pragma unroll
  for (int c = 0; c < Shape::Width / 4; ++c)
    Q_smem.as<float4>(row, 4 * c) = scaled(inverse, O_reg[c]);
  // Read after write: a thread stores elements that other threads have staged.
  __syncthreads();
  store_tile<Shape::Width>(O_all.head(b, h), query0, Q_smem);
  if (i < problem.Nq) L_all.head_vector(b, h)(i) = m + logf(l);
}

template <class Shape>
void start(Shape, const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_loop_order",
         {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         forward_kernel<Shape>, p, view<const float>(a.Q), view<const float>(a.K),
         view<const float>(a.V), view<float>(a.O), view<float>(a.L));
}

const Variant variant = plain_step<loop_order_shapes<ForwardShape>>(
    "loop_order", "Q outer loop: a row's O, m, l stay in registers, a block for each tile of Q");

}  // namespace
}  // namespace flash::fa2_forward::step_1
