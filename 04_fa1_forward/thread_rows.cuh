// A thread that owns a row: the tiles that its block loads, and its arithmetic, four columns at a time. Chapter 04 introduces
// it; the kernels of chapter 05 and of the first step of 06 are made of the same, and steps 2 and 3 of 06 load with it.
#pragma once

#include "common/device/device.cuh"

namespace flash::fa1_forward {
namespace {

constexpr int GROUP = 8;  // keys a thread works on at once: 8 independent sums hide the latency of each other's multiply-adds
// Rows of a tile that are a multiple of 32 floats apart begin in the same bank. With 4 more, 8 threads that read 16 bytes of
// their own row each meet all 32 banks once.
constexpr int PAD = 4;

/// d padded to a multiple of 32: the widths that are compiled.
inline int width_of(int d) { return (d + 31) / 32 * 32; }

/// The first row of the first Q tile in which a row sees key j: rows before it see none of the keys from j on.
FLASH_HOST_DEVICE inline int first_visible_tile(const Problem& p, int j, int Br) {
  const int first_row = p.causal ? j - (p.Nk - p.Nq) : 0;
  return first_row > 0 ? first_row / Br * Br : 0;
}

/// Four neighbours in a row of M, in one access where rows are aligned to it (`wide`); zeros beyond the last column.
template <class T>
__device__ float4 read_four(const Matrix<T>& M, int row, int col, bool wide) {
  if (wide) return col < M.cols ? M.template as<const float4>(row, col) : float4{};
  const auto element = [&](int c) { return c < M.cols ? static_cast<float>(M(row, c)) : 0.0f; };
  return make_float4(element(col), element(col + 1), element(col + 2), element(col + 3));
}
__device__ inline void write_four(const Matrix<float>& M, int row, int col, const float4& four, bool wide) {
  if (wide) {
    if (col < M.cols) M.as<float4>(row, col) = four;
  } else {
    if (col < M.cols) M(row, col) = four.x;
    if (col + 1 < M.cols) M(row, col + 1) = four.y;
    if (col + 2 < M.cols) M(row, col + 2) = four.z;
    if (col + 3 < M.cols) M(row, col + 3) = four.w;
  }
}

/// Rows row0, row0 + 1, ... of M as a tile in shared memory, copied by the whole block: neighbouring threads copy neighbouring
/// elements, four each. Zeros stand beyond the edges of M: 0 times what lay there before, perhaps NaN, would not be 0.
template <int Width, class T>
__device__ void load_tile(const SharedMatrix<float>& tile, const Matrix<T>& M, int row0, bool wide) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    const int row = e / Width, col = e % Width;
    tile.as<float4>(row, col) = row0 + row < M.rows ? read_four(M, row0 + row, col, wide) : float4{};
  }
}

/// The way back. A thread writes to HBM the very elements that load_tile() gives it to read.
template <int Width>
__device__ void store_tile(const Matrix<float>& M, int row0, const SharedMatrix<float>& tile, bool wide) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    const int row = e / Width, col = e % Width;
    if (row0 + row < M.rows) write_four(M, row0 + row, col, tile.as<const float4>(row, col), wide);
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

}  // namespace
}  // namespace flash::fa1_forward
