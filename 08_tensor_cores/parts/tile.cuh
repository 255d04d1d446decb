// 08 Tensor cores, from forward step 2 on: swizzled tiles in shared memory, and what turns them, or
// accumulators, into operands.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"
#include "08_tensor_cores/parts/mask.cuh"

namespace flash::tensor_cores {
namespace {

/// A tile as operand of a product. One name, two definitions, of which a step includes one:
/// ldmatrix.cuh in forward steps 2 to 5; addresses.cuh, the same blocks with cheaper addresses, in
/// all later ones and in the backward pass.
template <class Tile, bool Trans, int Depth>
struct Operand;

/// A tile [rows, Width] of T in shared memory, without padding: chunks of 8 elements are permuted
/// within their row (docs/reference/swizzles.md).
template <class T_, int Width>
struct Tile {
  using T = T_;
  static constexpr int WIDTH = Width;
  SharedMatrix<T> elements;

  __device__ Tile(T* start, int rows) : elements{start, rows, Width, Width} {}
  __device__ T* end() const { return elements.end(); }
  /// row: a multiple of 8.
  __device__ Tile below(int row) const {
    return {elements.data + row * Width, elements.rows - row};
  }

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
  __device__ Operand<Tile, false, Width / 16> left(int row0 = 0) const {
    return {*this, row0 + lane() % 16, lane() / 16, 0};
  }
  __device__ Operand<Tile, true, Width / 16> right(int col0 = 0) const {
    return {*this, lane() % 16, lane() / 16, col0};
  }
  __device__ Operand<Tile, false, Width / 16> transposed() const {
    return {*this, lane() / 16 * 8 + lane() % 8, lane() / 8 % 2, 0};
  }
  template <int Height>  // for the backward pass
  __device__ Operand<Tile, true, Height / 16> left_transposed(int col0) const {
    return {*this, lane() / 16 * 8 + lane() % 8, lane() / 8 % 2, col0};
  }

 private:
  __device__ static int lane() { return threadIdx.x % WARP; }
};

// From step 4 on: an operand that is no tile. Rounded packs a block whenever a product loads it,
// and keeps no copy. InRegisters (accumulators.cuh) packs at once, for operands that are used twice
// or by wgmma, or that are packed while V is still on its way.
//
// Why no element changes lanes, for 16 keys: fragments n = 0 and 1 of P. Numbers are lanes, each of
// which has two neighbouring elements; lane 5 is in brackets, with the register of A that they
// fill.
//
//   key      0 1   2 3   4 5   6 7      8 9  10 11 12 13 14 15
//   row 0     0     1     2     3        0     1     2     3
//   row 1     4  [5: 0]   6     7        4  [5: 2]   6     7
//   ...
//   row 8     0     1     2     3        0     1     2     3
//   row 9     4  [5: 1]   6     7        4  [5: 3]   6     7
//   ...
//           accumulators of n = 0        of n = 1
//
// As the left operand [16, 16] of P V lane 5 needs rows 1 and 9, columns 2, 3 and 10, 11: its own.

/// Accumulators as left operand, rounded to T: in fragments n = 2 k and 2 k + 1 a lane holds
/// exactly its elements of block k.
template <class T_, int RowFragments, int ColFragments>
struct Rounded {
  using T = T_;
  static constexpr int DEPTH = ColFragments / 2, ROW_FRAGMENTS = RowFragments;
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

}  // namespace
}  // namespace flash::tensor_cores
