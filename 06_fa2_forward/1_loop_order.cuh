// 06 FlashAttention-2, forward, step 1: the loops swapped (Dao 2023, Algorithm 1).
//
//   for each tile i of Q, a block of its own, for each tile j of K, V that it sees, a group of keys at a time:
//     S_ij = scale Q_i K_j^T + bias, masked                                             (6.1)
//     m_new = max(m, rowmax S_ij)                                                       (6.2)
//     P = exp(S_ij - m_new),   l = alpha l + rowsum P   with alpha = e^{m - m_new}      (6.3)
//     O_i = alpha O_i + P V_j                                                           (6.4)
//   O_i = O_i / l,   L = m + ln l                                                       (6.5)
//
// What changed since 04: a row stays with its thread from its first key to its last one. O, m and l are in registers, not in HBM; O is
// divided by l once, at the end; and only L is kept. Tiles of Q do not wait for each other, so each is a block: the grid
// grows with the length, where 04 has a block for each head.
//
// Grid: tiles of Q x B*H. Block: a thread for each row of the Q tile.
// Shared memory: K_j, V_j [Bc, Width], Q_i [Br, Width + PAD]; Width is d padded to a compiled size. Registers: O_i, a row, and m, l.
//
// HBM elements of a head, with R = sum over tiles i of the rows of the K tiles of which it sees any (Nk Tr if not causal)   (6.6)
//   read     Q: Nq d    K, V: R d each    bias: one per visible pair
//   written  O: Nq d    L: Nq
// Shapes: all.
#pragma once

#include "common/device/device.cuh"

#include <algorithm>

namespace flash::fa2_forward {
namespace {

constexpr int MAX_ROWS = 128;  // Br at most: a warp for each of an SM's four schedulers; blocks beside it hide its waiting
constexpr int GROUP = 8;  // keys a thread works on at once: 8 independent sums hide the latency of each other's multiply-adds
// Rows of Q_i that are a multiple of 32 floats apart begin in the same bank. With 4 more, 8 threads that read 16 bytes of their own
// row each meet all 32 banks once.
constexpr int PAD = 4;
// K and V move once for each tile of Q (6.6): the traffic depends on Br, no more on Bc. So Br comes first.
constexpr Tiles CHOICES[] = {{128, 32}, {128, 64}, {64, 32}, {64, 64}, {32, 32}};

/// d padded to a multiple of 32: the widths that are compiled.
inline int width_of(int d) { return (d + 31) / 32 * 32; }

/// Floats of shared memory: two tiles of Bc rows, a padded one of Br rows.
inline std::size_t shared_floats(const Tiles& t, int width) {
  return 2 * static_cast<std::size_t>(t.Bc) * static_cast<std::size_t>(width) +
         static_cast<std::size_t>(t.Br) * static_cast<std::size_t>(width + PAD);
}

/// Of the scores so far: their maximum m and l = sum exp(score - m). Before the first, and if all are masked: (-inf, 0).
struct RowStats {
  float m;
  float l;
};

/// What is subtracted from the scores of a set. If all are masked, m = -inf, and exp(-inf - 0) = 0 where exp(-inf + inf) = NaN.
__device__ inline float shift_of(float m) { return m == -INFINITY ? 0.0f : m; }

/// Rows row0, row0 + 1, ... of M as a tile in shared memory, copied by the whole block: neighbouring threads copy neighbouring
/// elements, an Access (float, or float4 where rows are aligned) each. Zeros stand beyond the edges of M: 0 times what lay there
/// before, perhaps NaN, would not be 0.
template <int Width, class Access, class T>
__device__ void load_tile(const SharedMatrix<float>& tile, const Matrix<T>& M, int row0) {
  constexpr int N = sizeof(Access) / sizeof(float);
  for (int e = threadIdx.x; e < tile.rows * (Width / N); e += blockDim.x) {
    const int row = e / (Width / N);
    const int col = e % (Width / N) * N;
    const bool exists = row0 + row < M.rows && col < M.cols;
    tile.as<Access>(row, col) = exists ? M.template as<const Access>(row0 + row, col) : Access{};
  }
}

/// The way back. A thread writes to HBM the very elements that load_tile() gives it to read.
template <int Width, class Access>
__device__ void store_tile(const Matrix<float>& M, int row0, const SharedMatrix<float>& tile) {
  constexpr int N = sizeof(Access) / sizeof(float);
  for (int e = threadIdx.x; e < tile.rows * (Width / N); e += blockDim.x) {
    const int row = e / (Width / N);
    const int col = e % (Width / N) * N;
    if (row0 + row < M.rows && col < M.cols) M.as<Access>(row0 + row, col) = tile.as<const Access>(row, col);
  }
}

/// sum + a . b, one multiply-add after the other.
__device__ inline float add_dot(float sum, const float4& a, const float4& b) {
  return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ inline float4 scaled(float x, const float4& a) { return make_float4(x * a.x, x * a.y, x * a.z, x * a.w); }
__device__ inline float4 add_scaled(const float4& sum, float x, const float4& a) {
  return make_float4(sum.x + x * a.x, sum.y + x * a.y, sum.z + x * a.z, sum.w + x * a.w);
}

/// q . k of a row of Q_i and of GROUP rows of K_j.  All threads read the same keys: one access serves the warp.
template <int Width>
__device__ void dot_products(float (&qk)[GROUP], const SharedMatrix<float>& Q_smem, int row, const SharedMatrix<float>& K_smem,
                             int key) {
#pragma unroll
  for (int g = 0; g < GROUP; ++g) qk[g] = 0.0f;
#pragma unroll 4
  for (int c = 0; c < Width; c += 4) {
    const float4 q = Q_smem.as<const float4>(row, c);
#pragma unroll
    for (int g = 0; g < GROUP; ++g) qk[g] = add_dot(qk[g], q, K_smem.as<const float4>(key + g, c));
  }
}

/// (6.2) to (6.4)  Takes GROUP more scores of a row into m, l and O.
template <int Width>
__device__ void accumulate(RowStats& row, float4 (&O_reg)[Width / 4], const float (&S)[GROUP],
                           const SharedMatrix<float>& V_smem, int key) {
  float m = row.m;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) m = fmaxf(m, S[g]);
  const float alpha = expf(row.m - shift_of(m));  // corrects what was summed under the older maximum
  float P[GROUP];
  float sum = 0.0f;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    P[g] = expf(S[g] - shift_of(m));
    sum += P[g];
  }
  row = {m, alpha * row.l + sum};
#pragma unroll
  for (int c = 0; c < Width / 4; ++c) {
    float4 o = scaled(alpha, O_reg[c]);
#pragma unroll
    for (int g = 0; g < GROUP; ++g) o = add_scaled(o, P[g], V_smem.as<const float4>(key + g, 4 * c));
    O_reg[c] = o;
  }
}

/// Grid: Tr*B*H. Block: Br.  Access: float4, or float where rows of Q, K, V or O are not aligned to it.
template <int Width, class Access>
__global__ void __launch_bounds__(MAX_ROWS, 1)
    forward_kernel(Problem problem, Tiles tiles, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Bias bias, Tensor<float> O_all, Tensor<float> L_all) {
  const int Br = tiles.Br, Bc = tiles.Bc, row = threadIdx.x;
  const int Tr = (problem.Nq + Br - 1) / Br;
  const int i0 = blockIdx.x % Tr * Br;
  const int h = blockIdx.x / Tr % problem.H;
  const int b = blockIdx.x / Tr / problem.H;
  const Matrix<const float> Q = Q_all.head(b, h);
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(2 * Bc * Width + Br * (Width + PAD));
  const SharedMatrix<float> K_smem{shared, Bc, Width, Width};
  const SharedMatrix<float> V_smem{shared + Bc * Width, Bc, Width, Width};
  const SharedMatrix<float> Q_smem{shared + 2 * Bc * Width, Br, Width, Width + PAD};

  // 1. The tile of Q, once; O = 0, l = 0, m = -inf.
  load_tile<Width, Access>(Q_smem, Q, i0);
  RowStats stats{-INFINITY, 0.0f};
  float4 O_reg[Width / 4] = {};
  __syncthreads();  // write after write: a tile that sees no key is at 3 at once, where rows of O take the place of those of Q

  // 2. The tiles of K and V, up to the last key that the last row of this tile sees.
  const int i = i0 + row;
  const int keys_of_tile = problem.visible_keys(min(i0 + Br, problem.Nq) - 1);
  for (int j0 = 0; j0 < keys_of_tile; j0 += Bc) {
    load_tile<Width, Access>(K_smem, K, j0);
    load_tile<Width, Access>(V_smem, V, j0);
    __syncthreads();  // read after write: a thread reads keys, values, and the row of Q that others have loaded

    // This thread's row of the tile, GROUP keys at a time, up to the last key that it sees.
    const int visible = i < problem.Nq ? problem.visible_keys(i) - j0 : 0;
    for (int key = 0; key < min(visible, Bc); key += GROUP) {
      float S[GROUP];  // q . k, then the scores
      dot_products<Width>(S, Q_smem, row, K_smem, key);
#pragma unroll
      for (int g = 0; g < GROUP; ++g) {  // (6.1); keys beyond the last one are not visible either
        S[g] = key + g < visible ? score(problem, bias, b, h, i, j0 + key + g, S[g]) : -INFINITY;
      }
      accumulate<Width>(stats, O_reg, S, V_smem, key);
    }
    __syncthreads();  // write after read: the next tiles overwrite what slower warps still read
  }

  // 3. (6.5). A row that saw no key has l = 0: O stays 0, L = -inf + -inf. O leaves by the place of Q, to be written as coalesced as
  // Q was read; nobody but this thread reads its row of Q.
  const float inverse = stats.l == 0.0f ? 0.0f : 1.0f / stats.l;
#pragma unroll
  for (int c = 0; c < Width / 4; ++c) Q_smem.as<float4>(row, 4 * c) = scaled(inverse, O_reg[c]);
  __syncthreads();  // read after write: a thread writes to HBM what others have put there
  store_tile<Width, Access>(O_all.head(b, h), i0, Q_smem);
  if (i < problem.Nq) L_all.head_vector(b, h)(i) = stats.m + logf(stats.l);
}

/// Can each row of a tensor be read as float4?
inline bool wide_rows(const TensorRef& t) {
  const auto aligned = [](std::int64_t elements) { return elements % 4 == 0; };
  return reinterpret_cast<std::uintptr_t>(t.data) % sizeof(float4) == 0 && aligned(t.shape[3]) && aligned(t.stride[0]) &&
         aligned(t.stride[1]) && aligned(t.stride[2]);
}

template <int Width>
void launch_width(const Attention& a) {
  const Problem& p = a.problem;
  const bool wide = wide_rows(a.Q) && wide_rows(a.K) && wide_rows(a.V) && wide_rows(a.O);
  const auto kernel = wide ? forward_kernel<Width, float4> : forward_kernel<Width, float>;
  launch("fa2_forward",
         {dim3(blocks_for(p.Nq, a.tiles.Br) * static_cast<unsigned>(p.B * p.H)), dim3(static_cast<unsigned>(a.tiles.Br)),
          shared_floats(a.tiles, Width) * sizeof(float)},
         kernel, p, a.tiles, view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), bias_of(a),
         view<float>(a.O), view<float>(a.L));
}

void forward(const Attention& a) {
  const int width = width_of(a.problem.d);
  if (width == 32) return launch_width<32>(a);
  if (width == 64) return launch_width<64>(a);
  if (width == 96) return launch_width<96>(a);
  launch_width<128>(a);
}

/// The tiles that the shared memory of a block holds; last those with a warp or more beyond the rows of a short problem.
std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) {
  std::vector<TileChoice> fit;
  const auto idle_warp = [&](const TileChoice& choice) { return choice.tiles.Br - p.Nq >= 32; };
  for (const Tiles& t : CHOICES) {
    const std::size_t bytes = shared_floats(t, width_of(p.d)) * sizeof(float);
    if (bytes <= limits.shared_bytes) fit.push_back({.tiles = t, .threads = t.Br, .shared_bytes = bytes, .why = ""});
  }
  std::stable_partition(fit.begin(), fit.end(), [&](const TileChoice& choice) { return !idle_warp(choice); });
  for (TileChoice& choice : fit) {
    choice.why = idle_warp(choice)       ? "warps without a row"
                 : choice.tiles.Bc == 32 ? "K and V move once for each Br rows; little shared memory, so more blocks on an SM"
                                         : "half as many barriers";
  }
  return fit;
}

/// "" or why the grid cannot hold a problem: it has a block for each tile of Q, batch and head, in x. Tiles have 32 rows at least.
std::string refuse(const Problem& p) {
  constexpr std::int64_t limit = 2147483647;
  const std::int64_t tiles_of_head = blocks_for(p.Nq, 32), heads = std::int64_t{p.B} * p.H;
  if (heads <= limit / tiles_of_head) return "";
  return std::to_string(heads) + " heads with " + std::to_string(p.Nq) + " queries each; a CUDA grid holds at most " +
         std::to_string(limit) + " blocks in a row, each of 32 queries or more";
}

const Variant variant{.name = "loop_order",
                      .idea = "Q outer loop: a row's O, m, l stay in registers, a block for each tile of Q",
                      .forward = forward,
                      .refuse = refuse,
                      .tiles = tiles};

}  // namespace
}  // namespace flash::fa2_forward
