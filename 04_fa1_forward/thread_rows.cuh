// 04 FlashAttention-1: the words in which its steps are written. One thread owns a row: the row's
// statistics and, from step 3 on, tiles that a block loads and the thread's arithmetic, four
// columns at a time. Chapter 05 uses both, step 1 of 06 the arithmetic.
#pragma once

#include "common/parts/kernel.cuh"

namespace flash::fa1_forward {
namespace {

/// The maximum m of a set of scores, and l = sum exp(score - m). An empty or fully masked set has
/// (-inf, 0).
struct RowStats {
  float m;
  float l;
};

/// (4.3)  From step 2 on: the statistics of the union of two sets, (3.4).
__device__ inline RowStats merge(RowStats a, RowStats b) {
  const float m = fmaxf(a.m, b.m);
  return {m, expf(a.m - zero_if_empty(m)) * a.l + expf(b.m - zero_if_empty(m)) * b.l};
}

// ---- From step 3 on -----------------------------------------------------------------------------

// Keys per thread at a time: 8 independent sums hide the latency of each other's multiply-adds.
constexpr int GROUP = 8;
// Rows of a tile that are a multiple of 32 floats apart start in the same bank. With 4 floats of
// padding, 8 threads that each read 16 bytes of a different row hit all 32 banks once.
constexpr int PAD = 4;

/// d padded to a multiple of 32: the widths that are compiled.
inline int width_of(int d) { return (d + 31) / 32 * 32; }

/// Four neighbouring elements of a row of M in one access, or zeros in the columns by which d is
/// padded.
template <class T>
__device__ float4 read_four(const Matrix<T>& M, int row, int col) {
  return col < M.cols ? M.template as<const float4>(row, col) : float4{};
}
__device__ inline void write_four(const Matrix<float>& M, int row, int col, const float4& four) {
  if (col < M.cols) M.as<float4>(row, col) = four;
}

/// Copies rows row0, row0 + 1, ... of M to a tile in shared memory. The whole block takes part:
/// neighbouring threads copy neighbouring elements, four each. It writes zeros beyond the edges of
/// M: stale data could be NaN, and 0 times NaN is not 0.
template <int Width, class T>
__device__ void load_tile(const SharedMatrix<float>& tile, const Matrix<T>& M, int row0) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    const int row = e / Width, col = e % Width;
    tile.as<float4>(row, col) = row0 + row < M.rows ? read_four(M, row0 + row, col) : float4{};
  }
}

/// Sets a tile to zero. Each thread clears exactly the elements that load_tile() assigns to it.
template <int Width>
__device__ void clear_tile(const SharedMatrix<float>& tile) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    tile.as<float4>(e / Width, e % Width) = float4{};
  }
}

/// Copies a tile back to M. Each thread writes exactly the elements that load_tile() assigns to it.
template <int Width>
__device__ void store_tile(const Matrix<float>& M, int row0, const SharedMatrix<float>& tile) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    const int row = e / Width, col = e % Width;
    if (row0 + row < M.rows) write_four(M, row0 + row, col, tile.as<const float4>(row, col));
  }
}

/// sum + a . b, one multiply-add after the other.
__device__ inline float add_dot(float sum, const float4& a, const float4& b) {
  return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ inline float4 scaled(float x, const float4& a) {
  return make_float4(x * a.x, x * a.y, x * a.z, x * a.w);
}
__device__ inline float4 add_scaled(const float4& sum, float x, const float4& a) {
  return make_float4(sum.x + x * a.x, sum.y + x * a.y, sum.z + x * a.z, sum.w + x * a.w);
}

/// From step 4 on: q . k for a row of Q_i and GROUP rows of K_j.  All threads read the same keys:
/// one access serves the warp.
template <int Width>
__device__ void dot_products(float (&qk)[GROUP], const SharedMatrix<float>& Q_smem, int row,
                             const SharedMatrix<float>& K_smem, int key) {
#pragma unroll
  for (int g = 0; g < GROUP; ++g) qk[g] = 0.0f;
#pragma unroll 4
  for (int c = 0; c < Width; c += 4) {
    const float4 q = Q_smem.as<const float4>(row, c);
#pragma unroll
    for (int g = 0; g < GROUP; ++g) qk[g] = add_dot(qk[g], q, K_smem.as<const float4>(key + g, c));
  }
}

/// Adds GROUP more scores to (m~, l~) and P~ V: (4.2) by the online rule (3.2), so that no thread
/// has to keep its row of S.
template <int Width>
__device__ void accumulate(RowStats& stats, float4 (&PV_reg)[Width / 4], const float (&S)[GROUP],
                           const SharedMatrix<float>& V_smem, int key) {
  float m = stats.m;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) m = fmaxf(m, S[g]);
  // alpha rescales what was summed under the older maximum.
  const float alpha = expf(stats.m - zero_if_empty(m));
  float P[GROUP];
  float sum = 0.0f;
#pragma unroll
  for (int g = 0; g < GROUP; ++g) {
    P[g] = expf(S[g] - zero_if_empty(m));
    sum += P[g];
  }
  stats = {m, stats.l * alpha + sum};
#pragma unroll
  for (int c = 0; c < Width / 4; ++c) {
    float4 o = scaled(alpha, PV_reg[c]);
#pragma unroll
    for (int g = 0; g < GROUP; ++g)
      o = add_scaled(o, P[g], V_smem.as<const float4>(key + g, 4 * c));
    PV_reg[c] = o;
  }
}

/// (4.4)  O = (l e^{m - m_new} O + e^{m~ - m_new} P~ V) / l_new, for a row of O. No visible key so
/// far: l_new = 0, O = 0.
template <int Width, class Output>
__device__ void merge_output(const Output& O, int row, RowStats old_stats, RowStats tile_stats,
                             RowStats new_stats, const float4 (&PV_reg)[Width / 4]) {
  const float inverse = new_stats.l == 0.0f ? 0.0f : 1.0f / new_stats.l;
  const float old_factor = old_stats.l * expf(old_stats.m - zero_if_empty(new_stats.m)) * inverse;
  const float new_factor = expf(tile_stats.m - zero_if_empty(new_stats.m)) * inverse;
#pragma unroll
  for (int c = 0; c < Width / 4; ++c) {
    const float4 o = O.template as<const float4>(row, 4 * c);
    O.template as<float4>(row, 4 * c) = add_scaled(scaled(old_factor, o), new_factor, PV_reg[c]);
  }
}

// ---- What the harness is told, from step 2 on ---------------------------------------------------

/// l and m [B, H, Nq, 1], where a row waits for the next tile of keys.
inline std::vector<WorkspaceSpec> workspace(const Problem& p, Pass) {
  const std::array<std::int64_t, 4> rows{p.B, p.H, p.Nq, 1};
  return {{"l", rows}, {"m", rows}};
}

/// "" or why a grid of one block per head cannot hold a problem.
inline std::string refuse(const Problem& p) {
  return refuse_row_of_blocks(std::int64_t{p.B} * p.H, 1, 1);
}

}  // namespace
}  // namespace flash::fa1_forward
