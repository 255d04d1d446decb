// 08 Tensor cores: swizzled tiles in shared memory, as forward step 2 introduces them, and what
// turns them, or accumulators, into operands. Steps 2 to 5 have an Operand of their own; that of
// this file, with cheap addresses, serves from step 6 on.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"
#include "08_tensor_cores/parts/architectures.cuh"
#include "08_tensor_cores/parts/mask.cuh"

namespace flash::tensor_cores {
namespace {

/// A tile as an operand of add_product(), which loads blocks of 16 x 16. Trans: ldmatrix transposes
/// it; a right operand sums over the tile's rows. Depth: blocks of a left operand's inner
/// dimension.
template <class Tile, bool Trans, int Depth = Tile::WIDTH / 16>
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

/// A tile [rows, Width] of T in shared memory, without padding: chunks of 8 elements are permuted
/// within their row (docs/reference/swizzles.md).
template <class T_, int Width, template <class, bool, int> class Op = Operand>
struct Tile {
  using T = T_;
  static constexpr int WIDTH = Width;
  SharedMatrix<T> elements;

  __device__ Tile(T* start, int rows) : elements{start, rows, Width, Width} {}
  __device__ T* end() const { return elements.data + elements.rows * Width; }
  __device__ Tile below(int row) const {
    return {elements.data + row * Width, elements.rows - row};
  }  // row: a multiple of 8

  /// Neighbouring elements of a chunk, as one access.
  template <class Wide>
  __device__ decltype(auto) as(int row, int col) const {
    return elements.template as<Wide>(row, swizzled_col(Width, row, col));
  }
  __device__ T* chunk(int row, int col) const {
    return elements.address(row, swizzled_col(Width, row, col));
  }

  // Operands. Each lane points to a chunk of a 16 x 16 block; the 8 lanes of a row of this table
  // point to 8 rows:
  //   lanes     left(), right()         transposed(), left_transposed()
  //    0.. 7    rows 0..7,  left chunk   rows 0..7,  left chunk
  //    8..15    rows 8..15, left chunk   rows 0..7,  right chunk
  //   16..23    rows 0..7,  right chunk  rows 8..15, left chunk
  //   24..31    rows 8..15, right chunk  rows 8..15, right chunk
  __device__ Op<Tile, false, Width / 16> left(int row0 = 0) const {
    return {*this, row0 + lane() % 16, lane() / 16, 0};
  }
  __device__ Op<Tile, true, Width / 16> right(int col0 = 0) const {
    return {*this, lane() % 16, lane() / 16, col0};
  }
  __device__ Op<Tile, false, Width / 16> transposed() const {
    return {*this, lane() / 16 * 8 + lane() % 8, lane() / 8 % 2, 0};
  }
  template <int Height>
  __device__ Op<Tile, true, Height / 16> left_transposed(int col0) const {
    return {*this, lane() / 16 * 8 + lane() % 8, lane() / 8 % 2, col0};
  }

 private:
  __device__ static int lane() { return threadIdx.x % WARP; }
};

// An operand that is no tile, which step 4 introduces. Rounded packs a block whenever a product
// loads it, and keeps no copy. InRegisters (accumulators.cuh) packs at once, for operands that are
// used twice or by wgmma, or that are packed while V is still on its way.

/// Accumulators as left operand, rounded to T: in fragments n = 2 k and 2 k + 1 a lane holds
/// exactly its elements of block k.
template <class T_, int RowFragments, int ColFragments>
struct Rounded {
  using T = T_;
  static constexpr int DEPTH = ColFragments / 2;
  const Accumulators<RowFragments, ColFragments>& P;

  __device__ void load(unsigned (&A)[4], int i, int k) const {
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) A[reg] = P.template pair<T>(i, 2 * k + reg / 2, reg % 2);
  }
};
template <class T, int RowFragments, int ColFragments>
__device__ Rounded<T, RowFragments, ColFragments> rounded(
    const Accumulators<RowFragments, ColFragments>& P) {
  return {P};
}

/// With step 6: one thread's share of copying consecutive tiles of Height rows from a matrix to
/// shared memory, one 16-byte chunk at a time. The matrix's rows are 16-byte aligned; tiles get
/// zeros beyond its last row and column.
template <class T, int Width, int Height, int Threads>
struct Copier {
  static constexpr int CHUNKS = Width / 8, FIT = Threads / CHUNKS;
  static constexpr int AT_ONCE = FIT >= 8 ? FIT / 8 * 8 : FIT;  // rows
  static constexpr bool SOME_IDLE =
      Threads != AT_ONCE * CHUNKS;  // Width 96: some threads have nothing to copy
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
