// 06 FlashAttention-2: a type that says which thread holds which elements of a matrix. Step 3 introduces it; from there on the
// kernels read like their equations:
//
//   const auto alpha = update_max(m, row_max(S));        m, alpha: one value per row (common/parts/rows.cuh)
//   S.each([&](float& s, int r) { ... m[r] ... });  S: this thread's part of the scores
//   O.scale_rows(alpha);
//
// A matrix is divided among warps by rows. The lanes of a warp form a grid of 32/LANES x LANES that repeats across the tile:
// with runs of 1, four rows of 8 lanes and 8 x 8 elements each, the lane at (y, x) has rows y, y + 4, ..., y + 28 of its warp
// and columns x, x + 8, ..., x + 56. With runs of 4 it takes four neighbours each time: rows 4y .. 4y + 3, then 4y + 16 ..
// 4y + 19.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/parts/compiled.hpp"
#include "common/parts/rows.cuh"

namespace flash::fa2_forward {
namespace {

/// A thread's part of a matrix [HEIGHT, WIDTH] in registers: Rows x Cols elements. Lanes: lanes per row. Warps: the warps that
/// divide the rows. Runs: how many neighbouring rows or columns a thread takes at a time (from step 5 on).
template <int Rows_, int Cols_, int Lanes, int Warps, int RowRun = 1, int ColRun = 1>
struct ThreadTile {
  static constexpr int ROWS = Rows_, COLS = Cols_, LANES = Lanes, ROW_RUN = RowRun, COL_RUN = ColRun;
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

  /// Calls f(element, r) for every element. r = 0 .. ROWS - 1 counts the thread's rows, as the index of m[r]; row(r) is its
  /// position.
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

  /// One step of the inner dimension of a product: += a b^T. In serpentine order each multiply-add reuses an operand of the
  /// previous one: reading three operands from the register file seems to take a second cycle (logbook of chapter 06, 6.10).
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

/// For --list.
template <class Tile>
constexpr ThreadPart part_of(const char* matrix) {
  return {matrix, Tile::ROWS, Tile::COLS, Tile::LANES, Tile::ROW_RUN, Tile::COL_RUN};
}
template <class Shape>
constexpr ThreadPart held_by_a_thread[] = {part_of<typename Shape::Scores>("S"), part_of<typename Shape::Output>("O")};

/// speed, per_sm: as in CompiledShape (from step 7 on).
template <class Shape>
constexpr CompiledShape compiled_shape(const char* why, void (*start)(const Attention&), double speed = 0, int per_sm = 1) {
  return {.width = Shape::Width,
          .tiles = {Shape::Br, Shape::Bc},
          .threads = Shape::THREADS,
          .shared_bytes = Shape::SHARED_FLOATS * sizeof(float),
          .min_sm = 75,
          .why = why,
          .start = start,
          .thread = held_by_a_thread<Shape>,
          .per_sm = per_sm,
          .speed = speed};
}

/// Writes C to M at (row0, col0), or adds it (chapter 07); elements beyond the last row and column are left out. Runs of four
/// columns are one access if all rows are 16-byte `aligned`.
template <class Tile>
__device__ void write_tile(const Matrix<float>& M, int row0, int col0, const Tile& C, bool aligned, bool add = false) {
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) {
    const int row = row0 + Tile::row(r);
    if (row >= M.rows) continue;
#pragma unroll
    for (int c = 0; c < Tile::COLS; c += Tile::COL_RUN) {
      const int col = col0 + Tile::col(c);
      const float* const run = &C.elements[r][c];
      if (Tile::COL_RUN == 4 && aligned && col < M.cols) {
        const float4 old = add ? M.as<const float4>(row, col) : float4{};
        store4(M.address(row, col), make_float4(old.x + run[0], old.y + run[1], old.z + run[2], old.w + run[3]));
        continue;
      }
#pragma unroll
      for (int e = 0; e < Tile::COL_RUN; ++e) {
        if (col + e < M.cols) M(row, col + e) = run[e] + (add ? static_cast<float>(M(row, col + e)) : 0.0f);
      }
    }
  }
}

/// (6.5)  The epilogue from step 6 on, where m is yet to be multiplied by late_scale: O = O / l and L = late_scale m + ln l, in
/// rows row0.. of O_rows and L. l: over this lane's columns.
template <class Tile>
__device__ void write_output(const Matrix<float>& O_rows, const Vector<float>& L, int row0, Tile& O, const Rows<Tile::ROWS>& m,
                             Rows<Tile::ROWS> l, float late_scale, bool aligned) {
  l = row_sum<Tile>(l);
  l.each([&](float& sum, int r) {
    const int row = row0 + Tile::row(r);
    if (Tile::col(0) == 0 && row < L.size) L(row) = sum == 0.0f ? -INFINITY : late_scale * m[r] + logf(sum);
    sum = sum == 0.0f ? 0.0f : 1.0f / sum;  // no visible key: O = 0
  });
  O.scale_rows(l);
  write_tile(O_rows, row0, 0, O, aligned);
}

/// (6.5)  The epilogue of steps 3 to 5, whose scores are scaled from the start: L = m + ln l.
template <class Tile>
__device__ void write_output(const Matrix<float>& O_rows, const Vector<float>& L, int row0, Tile& O, const Rows<Tile::ROWS>& m,
                             const Rows<Tile::ROWS>& l, bool aligned) {
  write_output(O_rows, L, row0, O, m, l, /*late_scale=*/1.0f, aligned);
}

}  // namespace
}  // namespace flash::fa2_forward
