// 06 FlashAttention-2: how tiles move between HBM and shared memory, in all steps and in stage 07.
// Rows in HBM have a multiple of 4 elements (Variant::row_multiple), so that a float4 holds columns
// that all exist or all do not.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/parts/compiled_shapes.hpp"
#include "common/parts/kernel.cuh"

namespace flash::fa2_forward {
namespace {

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

// ---- What the harness is told -----------------------------------------------------------------

/// For --list.
template <class Tile>
constexpr ThreadPart part_of(const char* matrix) {
  return {matrix, Tile::ROWS, Tile::COLS, Tile::LANES, Tile::ROW_RUN, Tile::COL_RUN};
}
template <class Shape>
constexpr ThreadPart held_by_a_thread[] = {part_of<typename Shape::Scores>("S"),
                                           part_of<typename Shape::Output>("O")};

/// One line of a table of sizes (shapes.hpp): start() is in the file that has the Shape.
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
