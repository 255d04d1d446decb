// 06 FlashAttention-2: the words in which the steps and stage 07 are written: which thread holds
// which elements of a matrix (from step 2 on), and how tiles move between HBM and shared memory.
//
//   const auto alpha = update_max(m, row_max(S), power);   m, alpha: a value per row (rows.cuh)
//   S.each([&](float& s, int r) { ... m[r] ... });         S: this thread's part of the scores
//   O.scale_rows(alpha);
//
// A matrix is divided among warps by rows. The lanes of a warp form a grid of 32/LANES x LANES that
// repeats across the tile: with runs of 1, four rows of 8 lanes and 8 x 8 elements each, the lane
// at (y, x) has rows y, y + 4, ..., y + 28 of its warp and columns x, x + 8, ..., x + 56. With runs
// of 4 it takes four neighbours each time: rows 4y .. 4y + 3, then 4y + 16 .. 4y + 19. Rows in HBM
// have a multiple of 4 elements (Variant::row_multiple), so that a float4 holds columns that all
// exist or all do not.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/parts/compiled.hpp"
#include "common/parts/rows.cuh"

namespace flash::fa2_forward {
namespace {

// ---- A thread's part of a matrix --------------------------------------------------------------

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

/// (6.2)  m = max(m, largest). Returns alpha = power(m_old - m), the factor that rescales sums over
/// the old P. power(x): e^x, or from step 4 on 2^(c x).
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

// ---- Copies between HBM and shared memory -----------------------------------------------------

/// Copies rows row0, row0 + 1, ... of M to a tile, through registers. Beyond M's last row and
/// column it writes zeros: stale data could be NaN, and 0 times NaN is not 0.
template <int Width>
__device__ void load_tile(const SharedMatrix<float>& tile, const Matrix<const float>& M, int row0) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    const int row = e / Width, col = e % Width;
    const bool exists = row0 + row < M.rows && col < M.cols;
    tile.as<float4>(row, col) = exists ? M.as<const float4>(row0 + row, col) : float4{};
  }
}

/// Copies a tile back to M. Each thread writes exactly the elements that load_tile() assigns to it.
template <int Width>
__device__ void store_tile(const Matrix<float>& M, int row0, const SharedMatrix<float>& tile) {
  for (int e = 4 * threadIdx.x; e < tile.rows * Width; e += 4 * blockDim.x) {
    const int row = e / Width, col = e % Width;
    if (row0 + row < M.rows && col < M.cols)
      M.as<float4>(row0 + row, col) = tile.as<const float4>(row, col);
  }
}

/// From step 3 on: as load_tile(), but asynchronously, to a tile [Height, Width]. A thread keeps to
/// its four columns, so that its addresses advance by a constant, which is worth 9 %.
template <class Shape, int Height>
__device__ void load_async(const SharedMatrix<float>& tile, const Matrix<const float>& M,
                           int row0) {
  constexpr int vectors = Shape::Width / 4, rows_at_once = Shape::THREADS / vectors;
  constexpr int steps = (Height + rows_at_once - 1) / rows_at_once;
  const int first = threadIdx.x / vectors, col = 4 * (threadIdx.x % vectors);
  if (first >= rows_at_once) return;  // Width 96: some threads have nothing to copy
  const bool col_exists = col < M.cols;
  if (row0 + Height <= M.rows) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = first + step * rows_at_once;
      if (Height % rows_at_once != 0 && row >= Height) break;
      cp_async_zfill<16>(tile.address(row, col), M.address(row0 + row, col_exists ? col : 0),
                         col_exists ? 16 : 0);
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < Height; row += rows_at_once) {  // the last rows of M, and zeros
    const bool exists = row0 + row < M.rows && col_exists;
    cp_async_zfill<16>(tile.address(row, col), M.address(exists ? row0 + row : 0, exists ? col : 0),
                       exists ? 16 : 0);
  }
}

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

// ---- What the harness is told -----------------------------------------------------------------

/// For --list.
template <class Tile>
constexpr ThreadPart part_of(const char* matrix) {
  return {matrix, Tile::ROWS, Tile::COLS, Tile::LANES, Tile::ROW_RUN, Tile::COL_RUN};
}
template <class Shape>
constexpr ThreadPart held_by_a_thread[] = {part_of<typename Shape::Scores>("S"),
                                           part_of<typename Shape::Output>("O")};

/// One line of a table of sizes (shapes.hpp): start() is that of the file which has the Shape.
/// speed, per_sm: as in CompiledShape.
template <class Shape>
constexpr CompiledShape compiled(const char* why, double speed = 0, int per_sm = 0) {
  CompiledShape shape{.width = Shape::Width,
                      .tiles = {Shape::Br, Shape::Bc},
                      .threads = Shape::THREADS,
                      .shared_bytes = Shape::SHARED_FLOATS * sizeof(float),
                      .min_sm = 75,
                      .why = why,
                      .start = [](const Attention& a) { start(Shape{}, a); },
                      .speed = speed};
  if constexpr (requires { typename Shape::Scores; }) shape.thread = held_by_a_thread<Shape>;
  if constexpr (requires { Shape::BLOCKS; }) shape.per_sm = per_sm > 0 ? per_sm : Shape::BLOCKS;
  return shape;
}

/// "" or why a grid of one block per tile of Q, of at least 32 rows, cannot hold a problem.
inline std::string refuse(const Problem& p) {
  return refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, 32);
}

/// A step of the ladder, for the plain problem alone.
template <const auto& shapes>
Variant plain_step(const char* name, const char* idea) {
  return {.name = name,
          .idea = idea,
          .forward = start_one_of<shapes>,
          .refuse = refuse,
          .tiles = choices_of<shapes>,
          .row_multiple = 4,
          .takes = plain_problem};
}

}  // namespace
}  // namespace flash::fa2_forward
