// 06 and 07 with dropout (chapter 09): which weights of a tile in registers are dropped.
#pragma once

#include "common/parts/ragged.cuh"

namespace flash {
namespace {

/// (9.12), (9.13)  P or dP becomes P o Z or dP o Z. Its tile begins at query query0, which is even,
/// and at key key0, a multiple of 32, of head h (over all batches).
template <class Rule, class Tile>
__device__ void drop(const Rule& rule, Tile& P, int h, int query0, int key0) {
  if constexpr (Drops<Rule>) {
    // The batch has one element. opaque(): no register keeps the number of the head through the
    // loop.
    if constexpr (Rule::RAGGED) h = opaque(h + rule.sequence * rule.problem.H);
    constexpr int rows = Tile::ROWS == 1 ? 1 : 2, apart = DropMask::APART / Tile::LANES;
    static_assert(Tile::COLS % (2 * apart) == 0, "a thread has both keys of a call");
#pragma unroll
    for (int r = 0; r < Tile::ROWS; r += rows) {
#pragma unroll
      for (int c = 0; c < Tile::COLS; ++c) {
        if (c / apart % 2 != 0) continue;  // drawn with column c - apart
        const FourWords drawn = rule.dropout.draw(h, query0 + Tile::row(r), key0 + Tile::col(c));
#pragma unroll
        for (int n = 0; n < 2 * rows; ++n) {
          const int row = r + n / 2, col = c + n % 2 * apart;
          P.elements[row][col] *= rule.dropout.factor(drawn, Tile::row(row), Tile::col(col));
        }
      }
    }
  }
}

}  // namespace
}  // namespace flash
