// 05 FlashAttention-1, backward: Algorithm 4 of Dao et al. 2022. No matrix [Nq, Nk] is ever written to HBM.
//
//   forward line             its derivatives
//   P = exp(S - m) / l                                      recomputed from Q, K, l and m  (5.7)
//   O = P V                  dV = P^T dO                    dP = dO V^T                    (5.1), (5.2)
//   P = softmax(S)           dS = P o (dP - D)              D = rowsum(dO o O)             (5.3), (5.4)
//   S = scale Q K^T          dQ = scale dS K                dK = scale dS^T Q              (5.5), (5.6)
//
// The loops are those of 04/2_tiled.cuh (its Q_smem is smem.Q here, its Q_all is all.Q): tiles of K and V outside, of Q inside.
// dK, dV of the outer tile accumulate in shared memory; dQ of the inner one, where 04 has O, is read from HBM and written back.
// Phases A and B are 04's two products; C, the transposed ones, is new. D is computed for every tile of K; 07 does it once.
//
// Grid: B * Hkv blocks. A block owns a key/value head and handles every query head of its group, so that only this block adds
// to dK and dV: no atomics, and each run gives the same bits.  Block: Br threads. A thread owns a row:
//   of the Q tile for P, dS (phase A) and dQ (phase B): it reads its rows of Q and dO, and all rows of K and V;
//   of the K tile for dV or dK (phase C): it reads its column of P or dS, and all rows of dO or Q.
//
// HBM elements per query head. R counts, over all tiles j, the rows of Q tiles that see tile j (Nq Tc if not causal)     (5.9)
//   read   Q, O, dO: R d each   l, m: R each   dQ: R d   bias: one per visible pair     written   dQ: (Nq + R) d
// and per key/value head: K, V read, dK, dV written, Nk d each.
// Shared memory (5.8): 4 tiles [Bc, Width], 2 [Br, Width], 2 [Br, Bc]; 204 KiB at d = 64 on sm_90.  Shapes: all, d up to 128.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"
#include "common/parts/forward_pass.hpp"

#include <algorithm>

namespace flash::fa1_backward {
namespace {

// Shared with chapter 04. Rows of all tiles are padded (PAD), since neighbouring threads read 16 bytes of neighbouring rows.
using fa1_forward::add_dot, fa1_forward::add_scaled, fa1_forward::clear_tile, fa1_forward::GROUP, fa1_forward::PAD,
    fa1_forward::read_four, fa1_forward::store_tile, fa1_forward::write_four, fa1_forward::width_of;

constexpr int MAX_Bc = 64;          // the tiles of P and dS grow with Bc squared
constexpr int MAX_Br = 2 * MAX_Bc;  // Br at most: see tiles_of()
constexpr int COLS = 32;            // gradient columns per thread in registers: one element of dS or P serves them all
constexpr int LOADS_IN_FLIGHT = 8;  // per thread, from HBM: otherwise 4 warps are too few to hide the latency

/// Floats of shared memory for such tiles.
FLASH_HOST_DEVICE constexpr int shared_floats(const Tiles& t, int width) {
  return (4 * t.Bc + 2 * t.Br) * (width + PAD) + 2 * t.Br * (t.Bc + PAD);
}

/// (5.8)  For M floats of shared memory the paper takes Bc = M/(4d), Br = min(Bc, d), which ignores P, dS, dK and dV. Here
/// - every array in shared memory is counted: 4 shared_floats() <= the bytes available to a block;
/// - Br = 2 Bc, so that a block has one thread per row of dV and one per row of dK;
/// - Bc is the largest multiple of 16 that fits, up to MAX_Bc and no larger than the problem needs. If not even 16 fits (d > 96
///   on a GPU with 64 KB), Bc = 8 and Br = 32: half of the threads then idle in phase C.
inline Tiles tiles_of(const Problem& p, const DeviceLimits& limits) {
  const int M = static_cast<int>(limits.shared_bytes / sizeof(float));
  const int needed = std::max(p.Nk, (p.Nq - 1) / 2 + 1);
  int Bc = needed >= MAX_Bc ? MAX_Bc : (needed + 15) / 16 * 16;
  while (Bc > 0 && shared_floats({2 * Bc, Bc}, width_of(p.d)) > M) Bc -= 16;
  return Bc > 0 ? Tiles{2 * Bc, Bc} : Tiles{32, 8};
}

/// What the kernel reads and writes in HBM.
struct Tensors {
  Tensor<const float> Q, K, V, O, dO, l, m;  // [B, H or Hkv, Nq or Nk, d], l and m [B, H, Nq, 1]
  Tensor<float> dQ, dK, dV;
};

/// Shared memory of a block.
struct SharedTiles {
  SharedMatrix<float> K, V, dK, dV;  // [Bc, Width]
  SharedMatrix<float> Q, dO;         // [Br, Width]
  SharedMatrix<float> P, dS;         // [Br, Bc]
};

template <int Width>
__device__ SharedTiles shared_tiles(int Br, int Bc) {
  float4* next = dynamic_shared<float4>(shared_floats({Br, Bc}, Width) / 4);  // float4 shows the compiler the alignment
  const auto take = [&next](int rows, int cols) {
    const SharedMatrix<float> tile{reinterpret_cast<float*>(next), rows, cols, cols + PAD};
    next += rows * ((cols + PAD) / 4);
    return tile;
  };
  return {.K = take(Bc, Width),
          .V = take(Bc, Width),
          .dK = take(Bc, Width),
          .dV = take(Bc, Width),
          .Q = take(Br, Width),
          .dO = take(Br, Width),
          .P = take(Br, Bc),
          .dS = take(Br, Bc)};
}

/// Like load_tile() of chapter 04, with the same elements per thread, but with LOADS_IN_FLIGHT loads before the first wait.
template <int Width, class T>
__device__ void load_tile_ahead(const SharedMatrix<float>& tile, const Matrix<T>& M, int row0, bool aligned) {
  constexpr int PER_ROW = Width / 4;  // float4
  const int count = tile.rows * PER_ROW;
  for (int first = threadIdx.x; first < count; first += LOADS_IN_FLIGHT * blockDim.x) {
    float4 loaded[LOADS_IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      const int e = first + k * blockDim.x, row = row0 + e / PER_ROW;
      loaded[k] = e < count && row < M.rows ? read_four(M, row, e % PER_ROW * 4, aligned) : float4{};
    }
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      const int e = first + k * blockDim.x;
      if (e < count) tile.as<float4>(e / PER_ROW, e % PER_ROW * 4) = loaded[k];
    }
  }
}

/// (5.4)  D_i = sum_c dO_ic O_ic. O is needed only here, so the thread that owns the row reads it straight from HBM.
template <int Width>
__device__ float row_D(const SharedMatrix<float>& dO_smem, int row, const Matrix<const float>& O, int i, bool aligned) {
  float D = 0.0f;
#pragma unroll 8
  for (int c = 0; c < Width; c += 4) D = add_dot(D, read_four(O, i, c, aligned), dO_smem.as<const float4>(row, c));
  return D;
}

/// What phase A knows of the thread's row of the Q tile.
struct QueryRow {
  int b, h, i, row;        // query i of head h; row of the tile
  int visible;             // keys it sees from key0 on; negative or above Bc if the last one is in another tile
  float m, one_over_l, D;  // of the query; m = 0 if it sees no key
};

/// Phase A, a row of the Q tile, to shared memory:  dP = dO V^T (5.2),  P = exp(S - m)/l (5.7),  dS = P o (dP - D) (5.3).
template <int Width>
__device__ void store_P_and_dS(const Problem& problem, const Bias& bias, const SharedTiles& smem, int key0,
                               const QueryRow& query) {
  const int b = query.b, h = query.h, i = query.i, row = query.row, visible = query.visible;
  const float m = query.m, one_over_l = query.one_over_l, D = query.D;
  for (int key = 0; key < smem.K.rows; key += GROUP) {
    float qk[GROUP] = {}, dP[GROUP] = {};
#pragma unroll 2
    for (int c = 0; c < Width; c += 4) {
      const float4 q = smem.Q.as<const float4>(row, c), dO = smem.dO.as<const float4>(row, c);
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {  // all threads read the same keys: one access serves the warp
        qk[g] = add_dot(qk[g], q, smem.K.as<const float4>(key + g, c));
        dP[g] = add_dot(dP[g], dO, smem.V.as<const float4>(key + g, c));
      }
    }
    alignas(16) float P[GROUP], dS[GROUP];
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      P[g] = key + g < visible ? expf(score(problem, bias, b, h, i, key0 + key + g, qk[g]) - m) * one_over_l : 0.0f;
      dS[g] = P[g] * (dP[g] - D);
    }
#pragma unroll
    for (int g = 0; g < GROUP; g += 4) {
      smem.P.as<float4>(row, key + g) = make_float4(P[g], P[g + 1], P[g + 2], P[g + 3]);
      smem.dS.as<float4>(row, key + g) = make_float4(dS[g], dS[g + 1], dS[g + 2], dS[g + 3]);
    }
  }
}

/// sum += weight * Y(row, c0 .. c0 + COLS - 1)
__device__ inline void add_row(float4 (&sum)[COLS / 4], float weight, const SharedMatrix<float>& Y, int row, int c0) {
#pragma unroll
  for (int k = 0; k < COLS / 4; ++k) sum[k] = add_scaled(sum[k], weight, Y.as<const float4>(row, c0 + 4 * k));
}

/// (5.5)  Phase B, a row of the Q tile:  dQ_i += scale (dS_i K), in HBM. Not coalesced, as a thread reads a row: staging dQ, as
/// 04 does O, would take another tile. Each tile is summed separately, as in phase C: a single chain of additions over all tiles
/// would lose two more bits (chapter 05, section 5).
template <int Width>
__device__ void add_to_dQ(const Matrix<float>& dQ, int i, float scale, const SharedTiles& smem, int row, bool aligned) {
  for (int c0 = 0; c0 < Width; c0 += COLS) {
    float4 old[COLS / 4], sum[COLS / 4] = {};
#pragma unroll
    for (int k = 0; k < COLS / 4; ++k) old[k] = read_four(dQ, i, c0 + 4 * k, aligned);  // in flight during the products
    for (int key = 0; key < smem.K.rows; key += 4) {
      const float4 dS = smem.dS.as<const float4>(row, key);
      add_row(sum, dS.x, smem.K, key, c0);
      add_row(sum, dS.y, smem.K, key + 1, c0);
      add_row(sum, dS.z, smem.K, key + 2, c0);
      add_row(sum, dS.w, smem.K, key + 3, c0);
    }
#pragma unroll
    for (int k = 0; k < COLS / 4; ++k) write_four(dQ, i, c0 + 4 * k, add_scaled(old[k], scale, sum[k]), aligned);
  }
}

/// Phase C, row `key` of the K tile:  dX_j += factor sum_i A_ij Y_i. With dX = dV, A = P, Y = dO and factor 1 it comes
/// from O = P V (5.1); with dX = dK, A = dS, Y = Q and factor scale from S = scale Q K^T (5.6).
template <int Width>
__device__ void add_to_key_gradient(const SharedMatrix<float>& dX, int key, float factor, const SharedMatrix<float>& A,
                                    const SharedMatrix<float>& Y) {
  for (int c0 = 0; c0 < Width; c0 += COLS) {
    float4 sum[COLS / 4] = {};
#pragma unroll 4
    for (int row = 0; row < A.rows; ++row) {
      const float a = A(row, key);  // neighbouring threads read neighbouring columns
      add_row(sum, a, Y, row, c0);
    }
#pragma unroll
    for (int k = 0; k < COLS / 4; ++k) {
      const float4 old = dX.as<const float4>(key, c0 + 4 * k);
      dX.as<float4>(key, c0 + 4 * k) = add_scaled(old, factor, sum[k]);
    }
  }
}

template <int Width>
__global__ void __launch_bounds__(MAX_Br, 1)
    backward_kernel(Problem problem, int Br, int Bc, Tensors all, Bias bias, bool aligned) {
  const int b = blockIdx.x / problem.Hkv, kv_head = blockIdx.x % problem.Hkv;
  const int first_head = kv_head * problem.group_size(), end_head = first_head + problem.group_size();
  const int thread = threadIdx.x, row = thread;  // of the Q tile; in phase C a thread has a key, a row of the K tile
  const Matrix<const float> K = all.K.head(b, kv_head), V = all.V.head(b, kv_head);
  const SharedTiles smem = shared_tiles<Width>(Br, Bc);

  // Line 5: dQ = 0. The first barrier below separates these writes from the first reads.
  clear_tile<Width>(smem.Q);
  for (int h = first_head; h < end_head; ++h) {
    for (int query0 = 0; query0 < problem.Nq; query0 += Br) store_tile<Width>(all.dQ.head(b, h), query0, smem.Q, aligned);
  }

  for (int key0 = 0; key0 < problem.Nk; key0 += Bc) {  // line 6
    load_tile_ahead<Width>(smem.K, K, key0, aligned);  // line 7
    load_tile_ahead<Width>(smem.V, V, key0, aligned);
    clear_tile<Width>(smem.dK);  // line 8
    clear_tile<Width>(smem.dV);

    for (int h = first_head; h < end_head; ++h) {
      for (int query0 = problem.first_query(key0, Br); query0 < problem.Nq; query0 += Br) {  // line 9
        const int i = query0 + row;
        load_tile_ahead<Width>(smem.Q, all.Q.head(b, h), query0, aligned);  // line 10
        load_tile_ahead<Width>(smem.dO, all.dO.head(b, h), query0, aligned);
        // Read after write: tiles that other threads have loaded, and zeros that they have written.
        __syncthreads();

        // Phase A: S (line 11), mask (12), P (13), dP (17), D (19), dS (20). If the row sees no key, l = 0, m = -inf: P = 0.
        int visible = 0;
        float m = 0.0f, l = 0.0f, D = 0.0f;
        if (i < problem.Nq) {
          visible = problem.visible_keys(i) - key0;
          m = all.m.head_vector(b, h)(i), l = all.l.head_vector(b, h)(i);
          D = row_D<Width>(smem.dO, row, all.O.head(b, h), i, aligned);
        }
        const float one_over_l = l == 0.0f ? 0.0f : 1.0f / l;
        const QueryRow query{
            .b = b, .h = h, .i = i, .row = row, .visible = visible, .m = zero_if_empty(m), .one_over_l = one_over_l, .D = D};
        store_P_and_dS<Width>(problem, bias, smem, key0, query);

        // Line 21, phase B. A thread reads only the row of dS that it has just written.
        if (i < problem.Nq) add_to_dQ<Width>(all.dQ.head(b, h), i, problem.scale, smem, row, aligned);
        // Read after write: a column of P or dS has an element from every thread.
        __syncthreads();

        // Lines 16 and 22, phase C: threads 0 .. Bc - 1 do dV += P^T dO, threads Bc .. 2 Bc - 1 dK += scale dS^T Q, by the same
        // instructions, since a warp may have threads of both kinds.
        if (thread < 2 * Bc) {
          const bool is_dV = thread < Bc;
          const SharedMatrix<float> dV_or_dK{is_dV ? smem.dV.data : smem.dK.data, Bc, Width, Width + PAD};
          const SharedMatrix<float> P_or_dS{is_dV ? smem.P.data : smem.dS.data, Br, Bc, Bc + PAD};
          const SharedMatrix<float> dO_or_Q{is_dV ? smem.dO.data : smem.Q.data, Br, Width, Width + PAD};
          const int key = is_dV ? thread : thread - Bc;
          add_to_key_gradient<Width>(dV_or_dK, key, is_dV ? 1.0f : problem.scale, P_or_dS, dO_or_Q);
        }
        // Write after read: the next tiles overwrite data still being read.
        // Read after write: line 24 stores what other threads have summed.
        __syncthreads();
      }
    }

    // Line 24. A thread stores the same elements that it zeroes for the next K tile: no barrier is needed in between.
    store_tile<Width>(all.dK.head(b, kv_head), key0, smem.dK, aligned);
    store_tile<Width>(all.dV.head(b, kv_head), key0, smem.dV, aligned);
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
  const auto in = [](const TensorRef& t) { return view<const float>(t); };
  const auto out = [](const TensorRef& t) { return view<float>(t); };
  const Tensors all{in(a.Q),   in(a.K),   in(a.V),  in(a.O), in(a.dO), in(a.workspace("l")), in(a.workspace("m")),
                    out(a.dQ), out(a.dK), out(a.dV)};
  launch("fa1_backward",
         {dim3(static_cast<unsigned>(p.B * p.Hkv)), dim3(static_cast<unsigned>(tiles.Br)),
          static_cast<std::size_t>(shared_floats(tiles, width)) * sizeof(float)},
         kernel, p, tiles.Br, tiles.Bc, all, bias_of(a), rows_are_aligned({a.Q, a.K, a.V, a.O, a.dO, a.dQ, a.dK, a.dV}));
}

const Variant variant{.name = "thread_per_row",
                      .idea = "Algorithm 4: P recomputed from l and m, dK and dV in shared memory, dQ through HBM",
                      .forward = run_forward_pass,
                      .backward = backward,
                      .workspace = [](const Problem& p, Pass pass) { return forward_pass().workspace(p, pass); },
                      .refuse = [](const Problem& p) { return forward_pass().refuse(p); }};

}  // namespace
}  // namespace flash::fa1_backward
