// 06 FlashAttention-2, for the hyperbolic scores here and in stage 07: sums of differences where
// the other kernels have products. The product of chapter 06 becomes add_squares(); its gradient is
// add_distance_gradient().
//
//   q0 = sqrt(1 + |q|^2), the time component, in two floats                              (9.18)
//   x = (|q - k|^2 - (q0 - k0)^2) / 2,   d = 2 asinh(sqrt(x / 2))  (9.19), (9.20)
#pragma once

#include "06_fa2_forward/operands.cuh"

namespace flash::fa2_forward {
namespace {

/// Starts copying the time components of Count rows, a thread each; 0 for those that do not exist.
template <class Shape, int Count>
__device__ void load_times(const SharedMatrix<float>& times, const Matrix<const float>& all,
                           int row0) {
  static_assert(Count <= Shape::THREADS, "a thread copies one row's");
  const int row = threadIdx.x;
  if (row >= Count) return;
  const bool exists = row0 + row < all.rows;
  cp_async_zfill<8>(times.address(row, 0), all.address(exists ? row0 + row : 0, 0), exists ? 8 : 0);
}

__device__ inline float2 time_of(const SharedMatrix<float>& times, int row) {
  return times.as<const float2>(row, 0);
}

/// q0 - k0.
__device__ inline float difference(float2 q0, float2 k0) { return (q0.x - k0.x) + (q0.y - k0.y); }

/// add_product() with any step: calls step(a, b, k) for each k of the inner dimension, with the
/// thread's ROWS elements of A and COLS of B.
template <class Tile, class Left, class Right, class Step>
__device__ void for_each_step(const Left& A, const Right& B, Step step) {
  constexpr int a_steps = Left::K_PER_LOAD, b_steps = Right::K_PER_LOAD,
                steps = a_steps > b_steps ? a_steps : b_steps;
#pragma unroll(8 / a_steps)
  for (int first = 0; first < A.depth(); first += steps) {
    float a[a_steps][Tile::ROWS], b[b_steps][Tile::COLS];
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      if (k % a_steps == 0) A.load(a, first + k, Tile::row);
      if (k % b_steps == 0) B.load(b, first + k, Tile::col);
      step(a[k % a_steps], b[k % b_steps], first + k);
    }
  }
}

/// S += |q - k|^2 for the rows q of A and k of B.
template <class Tile, class Left, class Right>
__device__ void add_squares(Tile& S, const Left& A, const Right& B) {
  for_each_step<Tile>(A, B, [&](const float(&a)[Tile::ROWS], const float(&b)[Tile::COLS], int) {
#pragma unroll
    for (int c = 0; c < Tile::COLS; ++c) {
#pragma unroll
      for (int r = 0; r < Tile::ROWS; ++r) S.elements[r][c] += (a[r] - b[c]) * (a[r] - b[c]);
    }
  });
}

/// (9.19)  S = |q - k|^2 becomes x, which is 0 for rows that do not exist.
template <class Tile>
__device__ void subtract_times(Tile& S, const SharedMatrix<float>& q0,
                               const SharedMatrix<float>& k0) {
  S.each_at([&](float& s, int row, int col) {
    const float theta = difference(time_of(q0, row), time_of(k0, col));
    s = fmaxf(0.5f * (s - theta * theta), 0.0f);
  });
}

/// (9.20)  The distance of two points.
__device__ inline float distance(float x) { return 2.0f * asinhf(sqrtf(0.5f * x)); }

/// (9.21)  Its derivative with respect to x; where the points coincide it has a kink, and 0 is a
/// subgradient.
__device__ inline float slope_of_distance(float x) {
  return x == 0.0f ? 0.0f : 1.0f / (sqrtf(x) * sqrtf(x + 2.0f));
}

/// (9.22)  C_r += sum_k G_rk (own_r - other_k - (own time - other time) own_r / own time). The
/// difference is taken before it is multiplied: near 0 the slopes in G are huge, and sums of the
/// two parts would cancel. (The loads of `own` hit banks twice where four lanes share a row, as
/// with d = 32 and 96.)
template <class Tile, class Left, class Right>
__device__ void add_distance_gradient(Tile& C, const Left& G, const Right& others,
                                      const SharedMatrix<float>& other_times,
                                      const SharedMatrix<float>& own,
                                      const SharedMatrix<float>& own_times) {
  float mine[Tile::ROWS][1][Tile::COLS];
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) MnMajor{own}.load(mine[r], Tile::row(r), Tile::col);
  Rows<Tile::ROWS> in_time(0.0f);
  for_each_step<Tile>(
      G, others, [&](const float(&g)[Tile::ROWS], const float(&other)[Tile::COLS], int k) {
        const float2 other_time = time_of(other_times, k);
#pragma unroll
        for (int r = 0; r < Tile::ROWS; ++r) {
          in_time[r] += g[r] * difference(time_of(own_times, Tile::row(r)), other_time);
#pragma unroll
          for (int c = 0; c < Tile::COLS; ++c)
            C.elements[r][c] += g[r] * (mine[r][0][c] - other[c]);
        }
      });
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) {
    // 0 / 0 in rows beyond the last, which nobody writes.
    const float factor = in_time[r] / time_of(own_times, Tile::row(r)).x;
#pragma unroll
    for (int c = 0; c < Tile::COLS; ++c) C.elements[r][c] -= factor * mine[r][0][c];
  }
}

}  // namespace
}  // namespace flash::fa2_forward
