// 06 FlashAttention-2, from step 2 on and in 07: which thread holds which elements of a matrix.
//
//   const auto alpha = update_max(m, row_max(S), power);   m, alpha: a value per row (rows.cuh)
//   S.each([&](float& s, int r) { ... m[r] ... });         S: this thread's part of the scores
//   O.scale_rows(alpha);
//
// A matrix is divided among warps by rows. The lanes of a warp form a grid of 32/LANES x LANES that
// repeats across the tile: with runs of 1, four rows of 8 lanes and 8 x 8 elements each, the lane
// at (y, x) has rows y, y + 4, ..., y + 28 of its warp and columns x, x + 8, ..., x + 56. With runs
// of 4 it takes four neighbours each time: rows 4y .. 4y + 3, then 4y + 16 .. 4y + 19.
#pragma once

#include "06_fa2_forward/tiles.cuh"
#include "common/parts/rows.cuh"

namespace flash::fa2_forward {
namespace {

/// Rows x Cols elements of a matrix [HEIGHT, WIDTH], in registers. Lanes: lanes per row. Warps: the
/// warps that divide the rows. Runs: how many neighbouring rows or columns a thread takes at a time
/// (4 from step 6 on).
template <int Rows_, int Cols_, int Lanes, int Warps, int RowRun = 1, int ColRun = 1>
struct ThreadTile {
  static constexpr int ROWS = Rows_, COLS = Cols_, LANES = Lanes;
  static constexpr int ROW_RUN = RowRun, COL_RUN = ColRun;
  static constexpr int WARP_ROWS = ROWS * (WARP / Lanes);
  static constexpr int HEIGHT = Warps * WARP_ROWS, WIDTH = COLS * Lanes;
  static_assert(ROWS % RowRun == 0 && COLS % ColRun == 0, "a thread takes whole runs");

  float elements[ROWS][COLS];

  __device__ explicit ThreadTile(float all) {
    each([&](float& x, int) { x = all; });
  }

  /// The thread's r-th row, and its c-th column, of the matrix.
  static __device__ int row(int r) {
    const int warp = threadIdx.x / WARP % Warps, y = threadIdx.x % WARP / Lanes;
    return warp * WARP_ROWS + RowRun * y + r % RowRun + RowRun * (WARP / Lanes) * (r / RowRun);
  }
  static __device__ int col(int c) {
    const int x = threadIdx.x % Lanes;
    return ColRun * x + c % ColRun + ColRun * Lanes * (c / ColRun);
  }

  /// Calls f(element, r) for every element. r = 0 .. ROWS - 1 counts the thread's rows, as the
  /// index of m[r]; row(r) is its position.
  template <class F>
  __device__ void each(F f) {
    visit(*this, f);
  }
  template <class F>
  __device__ void each(F f) const {
    visit(*this, f);
  }

  /// Calls f(element, row, col) for every element, with its position in the matrix.
  template <class F>
  __device__ void each_at(F f) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int c = 0; c < COLS; ++c) f(elements[r][c], row(r), col(c));
    }
  }

  /// One step of the inner dimension of a product: += a b^T. In serpentine order each multiply-add
  /// shares an operand with the previous one, so that the GPU need not read it from the register
  /// file again (.reuse in SASS).
  __device__ void add_outer_product(const float (&a)[ROWS], const float (&b)[COLS]) {
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
#pragma unroll
      for (int n = 0; n < ROWS; ++n) {
        const int r = c % 2 == 0 ? n : ROWS - 1 - n;
        elements[r][c] += a[r] * b[c];
      }
    }
  }
  __device__ void scale_rows(const Rows<ROWS>& factor) {
    each([&](float& x, int r) { x *= factor[r]; });
  }

 private:
  template <class Self, class F>
  static __device__ void visit(Self& self, F f) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int c = 0; c < COLS; ++c) f(self.elements[r][c], r);
    }
  }
};

/// Writes C to M at (row0, col0), or adds it (chapter 07), but for what lies beyond M's edges.
template <class Tile>
__device__ void write_tile(const Matrix<float>& M, int row0, int col0, const Tile& C,
                           bool add = false) {
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) {
    const int row = row0 + Tile::row(r);
    if (row >= M.rows) continue;
#pragma unroll
    for (int c = 0; c < Tile::COLS; c += Tile::COL_RUN) {
      const int col = col0 + Tile::col(c);
      if (col >= M.cols) continue;
      const float* const run = &C.elements[r][c];
      if constexpr (Tile::COL_RUN == 4) {
        const float4 old = add ? M.as<const float4>(row, col) : float4{};
        store4(M.address(row, col),
               make_float4(old.x + run[0], old.y + run[1], old.z + run[2], old.w + run[3]));
      } else {
        M(row, col) = run[0] + (add ? static_cast<float>(M(row, col)) : 0.0f);
      }
    }
  }
}

/// (6.5)  O = O / l and L = scale m + ln l, in rows row0.. of O_rows and L. l: over this lane's
/// columns. scale: by which m is yet to be multiplied (from step 4 on).
template <class Tile>
__device__ void write_output(const Matrix<float>& O_rows, const Vector<float>& L, int row0, Tile& O,
                             const Rows<Tile::ROWS>& m, Rows<Tile::ROWS> l, float scale = 1.0f) {
  l = row_sum<Tile>(l);
  l.each([&](float& sum, int r) {
    const int row = row0 + Tile::row(r);
    if (Tile::col(0) == 0 && row < L.size)
      L(row) = sum == 0.0f ? -INFINITY : scale * m[r] + logf(sum);
    sum = sum == 0.0f ? 0.0f : 1.0f / sum;  // no visible key: O = 0
  });
  O.scale_rows(l);
  write_tile(O_rows, row0, 0, O);
}

/// From step 5 on: hides keys that a query does not see, in scores that begin at query0 and key0.
/// Few tiles have any. The first query sees the fewest keys: if it sees the whole tile, all do.
/// (Rows beyond Nq are never written.)
template <class Tile>
__device__ void mask(Tile& S, const Problem& problem, int query0, int key0) {
  // opaque(): nothing that few tiles need is computed before the loop, to occupy registers there.
  const int i0 = opaque(query0);
  if (key0 + Tile::WIDTH <= problem.visible_keys(i0)) return;
  S.each_at([&](float& s, int row, int col) {
    if (key0 + col >= problem.visible_keys(i0 + row)) s = -INFINITY;
  });
}

}  // namespace
}  // namespace flash::fa2_forward
