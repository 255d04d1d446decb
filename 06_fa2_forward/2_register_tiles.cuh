// 06 FlashAttention-2, forward, step 2: register tiles.
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     S = scale Q_i K_j^T + bias, masked                    [Br, d] x [d, Bc]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                 (6.2)
//     P = e^(S - m_new),   l = alpha l + rowsum P                                       (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = m + ln l                                                           (6.5)
//
// New since step 1: a row belongs to a warp instead of a thread. A thread of step 1 reads 36 values from shared memory for
// 32 multiply-adds of q . k. Here it holds, for example, 8 x 8 elements of S and of O in two arrays: in each step of a product
// it reads 16 values and uses each 8 times, for 64 multiply-adds. The price: the lanes of a row combine its maximum and sum by
// shuffles, and P goes through shared memory, because a lane needs columns of P that other lanes hold.
//
// Grid: Tr*B*H. Block: warps; a warp owns whole rows of S and O; its lanes form a grid of 4 rows of 8.
// Shared memory: Q_i [Br, Width], K_j, V_j [Bc, Width], P [Br, Bc], rows padded.
// HBM: as step 1 (6.6).
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"
#include "common/machine/warp.cuh"
#include "common/parts/compiled.hpp"

namespace flash::fa2_forward::step_2 {
namespace {

using fa1_forward::load_tile;

constexpr int LANES = 8, LANE_ROWS = WARP / LANES;  // a warp's lanes: LANE_ROWS rows of LANES
// A warp reads a column of 8 rows of K, or of 4 rows of Q. With 4 floats of padding, rows start 4 banks apart: no conflicts.
constexpr int PAD = 4;

/// The tile sizes of one compiled kernel. Width: d, rounded up. A thread holds ROWS x KEYS elements of S and ROWS x COLS of O.
template <int Width_, int Br_, int Bc_, int ThreadRows>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROWS = ThreadRows, KEYS = Bc / LANES, COLS = Width / LANES;
  static constexpr int THREADS = Br / ROWS * LANES;
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Bc + LANES;  // a warp writes 4 rows of 8 of P: 32 banks
  static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * STRIDE + Br * P_STRIDE;
  static constexpr ThreadPart thread[2] = {{"S", ROWS, KEYS, LANES, 1, 1}, {"O", ROWS, COLS, LANES, 1, 1}};  // for --list

  static_assert(Br % (ROWS * LANE_ROWS) == 0, "a warp owns whole rows");
  static_assert(Bc % 32 == 0 && Width % 32 == 0, "PAD assumes rows of whole 32 banks");
};

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all, Tensor<const float> V_all, Bias bias,
                   Tensor<float> O_all, Tensor<float> L_all, bool aligned) {
  constexpr int ROWS = Shape::ROWS, KEYS = Shape::KEYS, COLS = Shape::COLS;
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int h = blockIdx.x / Tr % problem.H, b = blockIdx.x / Tr / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Q_smem{shared, Shape::Br, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> K_smem{Q_smem.data + Shape::Br * Shape::STRIDE, Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.data + Shape::Bc * Shape::STRIDE, Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> P_smem{V_smem.data + Shape::Bc * Shape::STRIDE, Shape::Br, Shape::Bc, Shape::P_STRIDE};

  // This thread's rows of the tile: y, y + LANE_ROWS, y + 2 LANE_ROWS, ... Its columns of S, and of O: x, x + LANES, ...
  const int x = threadIdx.x % LANES, y = threadIdx.x / WARP * (ROWS * LANE_ROWS) + threadIdx.x % WARP / LANES;

  // 1. Load the tile of Q, once; O = 0, l = 0, m = -inf.
  load_tile<Shape::Width>(Q_smem, Q_all.head(b, h), query0, aligned);
  float O[ROWS][COLS] = {};     // not normalised
  float m[ROWS], l[ROWS] = {};  // l: over this lane's columns only
#pragma unroll
  for (int r = 0; r < ROWS; ++r) m[r] = -INFINITY;

  // 2. The tiles of K and V, up to the last key visible to the last row of this tile.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    load_tile<Shape::Width>(K_smem, K, key0, aligned);
    load_tile<Shape::Width>(V_smem, V, key0, aligned);
    // Read after write: a thread reads rows of Q, K and V that other threads have loaded.
    __syncthreads();

    // (6.1)  S = Q K^T, as a sum of outer products over k.
    float S[ROWS][KEYS] = {};
#pragma unroll 4
    for (int k = 0; k < Shape::Width; ++k) {
      float q_reg[ROWS], k_reg[KEYS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) q_reg[r] = Q_smem(y + LANE_ROWS * r, k);
#pragma unroll
      for (int c = 0; c < KEYS; ++c) k_reg[c] = K_smem(x + LANES * c, k);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < KEYS; ++c) S[r][c] += q_reg[r] * k_reg[c];
      }
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      // (6.2)  The row's maximum over this lane's keys, then over the row's lanes. Pairs beyond the edges are masked too.
      const int i = query0 + y + LANE_ROWS * r;
      float m_new = m[r];
#pragma unroll
      for (int c = 0; c < KEYS; ++c) {
        const int j = key0 + x + LANES * c;
        S[r][c] = i < problem.Nq && j < problem.Nk ? score(problem, bias, b, h, i, j, S[r][c]) : -INFINITY;
        m_new = fmaxf(m_new, S[r][c]);
      }
#pragma unroll
      for (int distance = 1; distance < LANES; distance *= 2) m_new = fmaxf(m_new, __shfl_xor_sync(ALL_LANES, m_new, distance));
      const float alpha = expf(m[r] - zero_if_empty(m_new));  // rescales sums over the old P
      m[r] = m_new;

      // (6.3)  S becomes P.
      float sum = 0.0f;
#pragma unroll
      for (int c = 0; c < KEYS; ++c) {
        S[r][c] = expf(S[r][c] - zero_if_empty(m_new));
        sum += S[r][c];
        P_smem(y + LANE_ROWS * r, x + LANES * c) = S[r][c];
      }
      l[r] = alpha * l[r] + sum;
#pragma unroll
      for (int c = 0; c < COLS; ++c) O[r][c] *= alpha;
    }
    // Read after write: a lane reads elements of P that other lanes of its warp have written.
    __syncwarp();

    // (6.4)  O += P V.
#pragma unroll 4
    for (int k = 0; k < Shape::Bc; ++k) {
      float p_reg[ROWS], v_reg[COLS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) p_reg[r] = P_smem(y + LANE_ROWS * r, k);
#pragma unroll
      for (int c = 0; c < COLS; ++c) v_reg[c] = V_smem(k, x + LANES * c);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < COLS; ++c) O[r][c] += p_reg[r] * v_reg[c];
      }
    }

    // Write after read: the next tiles overwrite data that slower threads still read.
    __syncthreads();
  }

  // 3. (6.5)  No visible key: l = 0, O = 0, L = -inf.
  const Matrix<float> O_rows = O_all.head(b, h);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int i = query0 + y + LANE_ROWS * r;
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) l[r] += __shfl_xor_sync(ALL_LANES, l[r], distance);
    if (i >= problem.Nq) continue;
    if (x == 0) L_all.head_vector(b, h)(i) = m[r] + logf(l[r]);
    const float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
      if (x + LANES * c < problem.d) O_rows(i, x + LANES * c) = inverse * O[r][c];
    }
  }
}

template <class Shape>
void start(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_forward", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)}, forward_kernel<Shape>, p,
         view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), bias_of(a), view<float>(a.O), view<float>(a.L),
         rows_are_aligned({a.Q, a.K, a.V, a.O}));
}

template <class Shape>
constexpr CompiledShape compiled(const char* why) {
  return {Shape::Width, {Shape::Br, Shape::Bc}, Shape::THREADS, Shape::SHARED_FLOATS * sizeof(float), 75,
          why,          start<Shape>,           Shape::thread};
}

// Width, Br, Bc, rows per thread.
constexpr CompiledShape shapes[] = {
    compiled<ForwardShape<32, 128, 64, 8>>("8 x 8 scores a thread"),
    compiled<ForwardShape<32, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<ForwardShape<64, 128, 64, 8>>("8 x 8 scores and outputs a thread"),
    compiled<ForwardShape<64, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<ForwardShape<96, 64, 64, 4>>("4 x 8 scores and 4 x 12 outputs a thread"),
    compiled<ForwardShape<96, 32, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<ForwardShape<128, 64, 32, 4>>("4 x 4 scores and 4 x 16 outputs a thread"),
    compiled<ForwardShape<128, 32, 32, 4>>("twice as many blocks, little shared memory"),
};

std::string refuse(const Problem& p) { return refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, 32); }

const Variant variant{.name = "register_tiles",
                      .idea = "a thread holds a tile of S and of O, the lanes of a row meet in shuffles",
                      .forward = start_one_of<shapes>,
                      .refuse = refuse,
                      .tiles = choices_of<shapes>};

}  // namespace
}  // namespace flash::fa2_forward::step_2
