// 08 Tensor cores, forward from step 6 on, and backward: Operand of tile.cuh, and copies. The
// addresses that an operand loads from differ by constants or an XOR, those that a copy writes to
// by constants.
#pragma once

#include "08_tensor_cores/parts/tile.cuh"

namespace flash::tensor_cores {
namespace {

/// A tile as an operand of add_product(), which loads blocks of 16 x 16. Trans: ldmatrix transposes
/// it; a right operand sums over the tile's rows. Depth: blocks of a left operand's inner
/// dimension.
template <class Tile, bool Trans, int Depth>
struct Operand {
  using T = typename Tile::T;
  static constexpr int DEPTH = Depth, WIDTH = Tile::WIDTH;
  // Bytes within which the swizzle permutes chunks.
  static constexpr int PERIOD = WIDTH % 64 == 0 ? 128 : WIDTH % 32 == 0 ? 64 : 32;
  SharedMatrix<T> elements;
  // Bytes from the tile's start to this lane's chunk of block (0, 0). XOR on a pointer costs ten
  // registers.
  int offset;
  int first_bytes;  // bytes from the tile's first column to the operand's first column

  /// The operand begins at column col0; this lane points to chunk `chunk`, 0 or 1, of row `row` of
  /// block (0, 0).
  __device__ Operand(const Tile& tile, int row, int chunk, int col0)
      : elements(tile.elements),
        offset(2 * WIDTH * row + 16 * swizzled_chunk(WIDTH, row, chunk)),
        first_bytes(2 * col0) {}

  __device__ void load(unsigned (&block)[4], int outer, int inner) const {
    // The block starts `rows` rows down and `bytes` bytes to the right. Whole periods of the
    // swizzle are added. Within a period the lane's chunk of block (0, 0) is 0 or 1, and the block
    // is an even number of chunks on: their sum is their XOR, and XOR commutes with the swizzle.
    // Example, Width 64, row 3: chunk 0 of block (0, 0) is in place 0 ^ 3 = 3, byte 3 * 128 + 48 =
    // 432 of the tile. The next block to the right begins with chunk 2, in place 2 ^ 3 = 1, byte
    // 400 = 432 ^ 32: one XOR moves the lane's address.
    const int rows = 16 * (Trans ? inner : outer),
              bytes = first_bytes + 32 * (Trans ? outer : inner);
    const int within = bytes % PERIOD, periods = bytes - within;
    const T* const chunk = elements.at_byte((offset ^ within) + (periods + 2 * WIDTH * rows));
    if constexpr (Trans) {
      ldmatrix_x4_trans(block, chunk);
    } else {
      ldmatrix_x4(block, chunk);
    }
  }
};

/// One thread's share of copying consecutive tiles of Height rows from a matrix to shared memory,
/// one 16-byte chunk at a time. The matrix's rows are 16-byte aligned; tiles get zeros beyond its
/// last row and column.
template <class T, int Width, int Height, int Threads>
struct Copier {
  static constexpr int CHUNKS = Width / 8, FIT = Threads / CHUNKS;
  static constexpr int AT_ONCE = FIT >= 8 ? FIT / 8 * 8 : FIT;  // rows
  // Width 96: some threads have nothing to copy.
  static constexpr bool SOME_IDLE = Threads != AT_ONCE * CHUNKS;
  static_assert(Height % AT_ONCE == 0, "the last step is a whole one");
  Matrix<const T> from;  // from this thread's first row of the next tile on

  /// Starts at row0.
  __device__ Copier(const Matrix<const T>& M, int row0)
      : from(M.below(row0 + static_cast<int>(threadIdx.x) / CHUNKS)) {}

  /// Starts copying a tile, and moves on to the tile that begins `next` rows further down.
  __device__ void load_async(const Tile<T, Width>& tile, int next = 0) {
    const unsigned thread =
        opaque(threadIdx.x);  // recomputed in each call instead of kept in registers
    const int row0 = thread / CHUNKS, col = thread % CHUNKS * 8;
    if (SOME_IDLE && row0 >= AT_ONCE) return;
    const int from_col = col < from.cols ? col : 0, bytes = col < from.cols ? 16 : 0;
    Matrix<const T> rest = from;
    // `from` begins at this thread's first row of the tile, row0. Its last row of the tile is
    // Height - AT_ONCE further down.
    const bool all_exist = from.rows > Height - AT_ONCE;
    if (all_exist) {
#pragma unroll
      for (int step = 0; step < Height; step += AT_ONCE, rest = rest.below(AT_ONCE)) {
        cp_async_zfill<16>(tile.chunk(row0 + step, col), rest.address(0, from_col), bytes);
      }
    } else {
      // At the end of the matrix: a chunk that does not exist gets the address of the tile's first
      // row, which does.
#pragma unroll 1
      for (int row = row0; row < Height; row += AT_ONCE, rest = rest.below(AT_ONCE)) {
        const bool exists = rest.rows > 0;
        cp_async_zfill<16>(tile.chunk(row, col),
                           (exists ? rest : from.below(-row0)).address(0, from_col),
                           exists ? bytes : 0);
      }
    }
    // May point outside the matrix, past its last tile or before its first: undefined in standard
    // C++, although never dereferenced.
    from = from.below(next);
  }
};

}  // namespace
}  // namespace flash::tensor_cores
