// Values per row of a tile of scores in registers: m, l, alpha, in 06 for tiles of threads, in 08
// for mma fragments. In both, a tile is a type that says which elements a lane holds:
//
//   Scores::ROWS, Scores::LANES     rows that a lane holds elements of; neighbouring lanes per row
//   Scores::HEIGHT, Scores::WIDTH   rows and columns of the tile
//   each(f)                       f(element, r) for every element of a lane; r = 0 .. ROWS - 1: row
//   each_at(f)                    f(element, row, col) with its position in the tile
//
// All loops are unrolled, so that every index is a constant and every element is in a register.
#pragma once

#include "common/machine/warp.cuh"
#include "common/parts/kernel.cuh"

namespace flash {
namespace {

/// One value for every row that a lane holds elements of, such as m, l and alpha.
template <int N>
struct Rows {
  float elements[N];

  __device__ explicit Rows(float all) {
    each([&](float& x, int) { x = all; });
  }

  /// Calls f(value, r) for every row r.
  template <class F>
  __device__ Rows& each(F f) {
#pragma unroll
    for (int r = 0; r < N; ++r) f(elements[r], r);
    return *this;
  }
  __device__ float& operator[](int r) { return elements[r]; }
  __device__ float operator[](int r) const { return elements[r]; }

  friend __device__ Rows operator*(Rows a, const Rows& b) {
    return a.each([&](float& x, int r) { x *= b[r]; });
  }
  friend __device__ Rows operator+(Rows a, const Rows& b) {
    return a.each([&](float& x, int r) { x += b[r]; });
  }
};

/// The maximum of each row, in all lanes that share it.
template <class Scores>
__device__ Rows<Scores::ROWS> row_max(const Scores& S) {
  Rows<Scores::ROWS> largest(-INFINITY);
  S.each([&](float s, int r) { largest[r] = fmaxf(largest[r], s); });
  return largest.each([](float& x, int) {
#pragma unroll
    for (int distance = 1; distance < Scores::LANES; distance *= 2)
      x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
  });
}

/// (6.2)  m = max(m, largest). Returns alpha = power(m_old - m), the factor that rescales sums over
/// the old P. power(x): e^x, or in later steps 2^(c x).
template <int N, class Power>
__device__ Rows<N> update_max(Rows<N>& m, const Rows<N>& largest, Power power) {
  Rows<N> alpha(0.0f);
#pragma unroll
  for (int r = 0; r < N; ++r) {
    const float m_new = fmaxf(m[r], largest[r]);
    alpha[r] = power(m[r] - zero_if_empty(m_new));
    m[r] = m_new;
  }
  return alpha;
}

/// The sum over this lane's elements of each row. At the end row_sum() adds up those of all lanes.
template <class Scores>
__device__ Rows<Scores::ROWS> lane_sum(const Scores& S) {
  Rows<Scores::ROWS> sum(0.0f);
  S.each([&](float s, int r) { sum[r] += s; });
  return sum;
}

/// The row's sum over all lanes that share it, from each lane's `sum`.
template <class Scores>
__device__ Rows<Scores::ROWS> row_sum(Rows<Scores::ROWS> sum) {
  return sum.each([](float& x, int) {
#pragma unroll
    for (int distance = 1; distance < Scores::LANES; distance *= 2)
      x += __shfl_xor_sync(ALL_LANES, x, distance);
  });
}

}  // namespace
}  // namespace flash
