// 08 Tensor cores, forward: Operand of tile.cuh in steps 2 to 5, by ldmatrix, with an address for
// each block.
#pragma once

#include "08_tensor_cores/parts/tile.cuh"

namespace flash::tensor_cores {
namespace {

/// A tile as an operand. load() loads a 16 x 16 block: block `outer` of a left operand's rows or a
/// right operand's columns, and block `inner` of the dimension that the product sums over. Trans:
/// sums run down the columns of the tile, which ldmatrix transposes.
template <class Tile, bool Trans, int Depth>
struct Operand {
  using T = typename Tile::T;
  static constexpr int DEPTH = Depth;  // of a left operand
  Tile tile;
  int row, col;  // of this lane's chunk in block (0, 0)

  __device__ Operand(const Tile& tile_, int row_, int chunk, int col0)
      : tile(tile_), row(row_), col(col0 + 8 * chunk) {}

  __device__ void load(unsigned (&block)[4], int outer, int inner) const {
    if constexpr (Trans) {
      ldmatrix_x4_trans(block, tile.chunk(row + 16 * inner, col + 16 * outer));
    } else {
      ldmatrix_x4(block, tile.chunk(row + 16 * outer, col + 16 * inner));
    }
  }
};

}  // namespace
}  // namespace flash::tensor_cores
