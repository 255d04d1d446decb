// Arithmetic of launch shapes, and what a CUDA grid cannot hold. For all stages.
#pragma once

#include "common/attention/problem.hpp"

#include <cstdint>
#include <string>

namespace flash {

/// Blocks that cover n elements, `size` per block.
inline unsigned blocks_for(int n, int size) {
  return static_cast<unsigned>((static_cast<long long>(n) + size - 1) / size);
}

/// "" or why a grid cannot hold a problem with one layer per batch and head, and in each layer a
/// row of blocks per `rows_per_block` queries or keys: CUDA allows 65535 in y and in z.
std::string refuse_grid_beyond(const Problem& p, int rows_per_block);

/// "" or why a grid cannot hold a problem with one block per `rows_per_block` rows of each head,
/// all in x.
std::string refuse_row_of_blocks(std::int64_t heads, int rows, int rows_per_block);

}  // namespace flash
