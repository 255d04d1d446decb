// A softmax over tiles of scores in registers: values per row, and the rules that turn products into scores. Chapter 06
// introduces both for tiles of threads, chapter 08 applies them to mma fragments. In both, a tile is a type that says which
// elements a lane holds:
//
//   Tile::ROWS, Tile::LANES       rows that a lane holds elements of; neighbouring lanes that share a row
//   Tile::HEIGHT, Tile::WIDTH     rows and columns of the tile
//   each(f)                       f(element, r) for every element that the lane holds, r = 0 .. ROWS - 1 its row
//   each_at(f)                    f(element, row, col) with its position in the tile
//
// All loops are unrolled, so that every index is a constant and every element is in a register.
#pragma once

#include "common/device/device.cuh"
#include "common/device/ptx.cuh"
#include "common/device/warp.cuh"

namespace flash {
namespace {

constexpr float LOG2_E = 1.44269504f;

// ---- Row statistics ---------------------------------------------------------------------------------------------------------

/// One value for every row that a lane holds elements of, such as m, l and alpha.
template <int N>
struct Rows {
  float number[N];

  __device__ explicit Rows(float all) {
    each([&](float& x, int) { x = all; });
  }

  /// Calls f(value, r) for every row r.
  template <class F>
  __device__ Rows& each(F f) {
#pragma unroll
    for (int r = 0; r < N; ++r) f(number[r], r);
    return *this;
  }
  __device__ float& operator[](int r) { return number[r]; }
  __device__ float operator[](int r) const { return number[r]; }

  friend __device__ Rows operator*(Rows a, const Rows& b) {
    return a.each([&](float& x, int r) { x *= b[r]; });
  }
  friend __device__ Rows operator+(Rows a, const Rows& b) {
    return a.each([&](float& x, int r) { x += b[r]; });
  }
};

/// The maximum of each row, in all lanes that share it.
template <class Tile>
__device__ Rows<Tile::ROWS> row_max(const Tile& S) {
  Rows<Tile::ROWS> largest(-INFINITY);
  S.each([&](float s, int r) { largest[r] = fmaxf(largest[r], s); });
  return largest.each([](float& x, int) {
#pragma unroll
    for (int distance = 1; distance < Tile::LANES; distance *= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, distance));
  });
}

/// The sum over this lane's elements of each row. The lanes of a row add up their sums once, at the end: row_sum().
template <class Tile>
__device__ Rows<Tile::ROWS> lane_sum(const Tile& S) {
  Rows<Tile::ROWS> sum(0.0f);
  S.each([&](float s, int r) { sum[r] += s; });
  return sum;
}

/// The row's sum over all lanes that share it, from each lane's `sum`.
template <class Tile>
__device__ Rows<Tile::ROWS> row_sum(Rows<Tile::ROWS> sum) {
  return sum.each([](float& x, int) {
#pragma unroll
    for (int distance = 1; distance < Tile::LANES; distance *= 2) x += __shfl_xor_sync(ALL_LANES, x, distance);
  });
}

// ---- Scores -----------------------------------------------------------------------------------------------------------------

/// How products become scores: scale Q K^T + bias, masked. Made on the host.
struct ScoreRule {
  Problem problem;
  Bias bias;
  bool scale_first;  ///< apply() scales the scores; otherwise `factor` becomes part of the exponent
  float factor;      ///< still to be multiplied after apply(): 1 or the scale

  /// Turns products into scores. S belongs to a head (counted over all batches); its first row is query row0, its first column
  /// key col0. Transposed: rows are keys, columns queries.
  template <bool Transposed = false, class Tile>
  __device__ void apply(Tile& S, int head, int row0, int col0) const {
    // row0 is the same for all tiles of a block, except in chapter 07. opaque() stops the compiler from hoisting the addresses
    // of rare tiles into every tile.
    const int i0 = Transposed ? col0 : opaque(row0), j0 = Transposed ? opaque(row0) : col0;
    if (scale_first) scale_and_add_bias<Transposed>(S, opaque(head), i0, j0);
    mask<Transposed>(S, i0, j0);
  }

  /// Only masks, for scores that are not scaled first: i0 is the first query, j0 the first key.
  template <bool Transposed = false, class Tile>
  __device__ void mask(Tile& S, int i0, int j0) const {
    const int end = j0 + (Transposed ? Tile::HEIGHT : Tile::WIDTH);
    if (end > problem.visible_keys(i0)) {  // the first query sees the fewest keys
      S.each_at([&](float& s, int row, int col) {
        if (j0 + (Transposed ? row : col) >= problem.visible_keys(i0 + (Transposed ? col : row))) s = -INFINITY;
      });
    }
  }

  template <bool Transposed, class Tile>
  __device__ void scale_and_add_bias(Tile& S, int head, int i0, int j0) const {
    S.each([&](float& s, int) { s *= problem.scale; });
    if (bias.kind == BiasKind::none) return;
    const Matrix<const float> values = bias.values.head(head / problem.H, head % problem.H);
    if (bias.kind == BiasKind::alibi) {
      const float slope = values(0, 0);
      S.each_at([&](float& s, int row, int col) {
        s -= slope * fabsf(static_cast<float>(i0 + bias.diagonal - j0 + (Transposed ? col - row : row - col)));
      });
    } else {
      S.each_at([&](float& s, int row, int col) {
        const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
        s += i < problem.Nq && j < problem.Nk ? static_cast<float>(values(i, j)) : 0.0f;
      });
    }
  }
};

/// Whether scores are scaled before the maximum is taken: with a bias, which is added to scaled scores; with a scale that is
/// not positive, which would turn the maximum into a minimum; and with a scale whose product with log2 e might overflow.
inline bool scales_first(const Problem& p) { return p.bias != BiasKind::none || !(p.scale > 0.0f && p.scale < 1e30f); }

/// The rule for a run.
inline ScoreRule score_rule(const Attention& a, bool always_scale_first = false) {
  const Problem& p = a.problem;
  const bool scale_first = always_scale_first || scales_first(p);
  return {p, bias_of(a), scale_first, scale_first ? 1.0f : p.scale};
}

}  // namespace
}  // namespace flash
