// Arithmetic of launch shapes.
#pragma once

#include "common/attention/problem.hpp"

#include <cstdint>
#include <string>

namespace flash {

/// Blocks that cover n elements, `size` per block.
inline unsigned blocks_for(int n, int size) { return static_cast<unsigned>((static_cast<long long>(n) + size - 1) / size); }

/// "" or why a grid cannot hold a problem with one layer per batch and head, and in each layer a row of blocks per
/// `rows_per_block` queries or keys: CUDA allows 65535 in y and in z.
inline std::string refuse_grid_beyond(const Problem& p, int rows_per_block) {
  constexpr std::int64_t limit = 65535;
  const std::int64_t layers = std::int64_t{p.B} * p.H;
  if (layers > limit) {
    return "--batch " + std::to_string(p.B) + " times --heads " + std::to_string(p.H) + " is " + std::to_string(layers) +
           "; a CUDA grid holds at most " + std::to_string(limit);
  }
  const int longest = p.Nq > p.Nk ? p.Nq : p.Nk;
  if (longest > limit * rows_per_block) {
    return std::to_string(longest) + " queries or keys; a CUDA grid holds at most " + std::to_string(limit) +
           " rows of blocks of " + std::to_string(rows_per_block);
  }
  return "";
}

/// "" or why a grid cannot hold a problem with one block per `rows_per_block` rows of each head, all in x.
inline std::string refuse_row_of_blocks(std::int64_t heads, int rows, int rows_per_block) {
  constexpr std::int64_t limit = 2147483647;
  if (heads <= limit / blocks_for(rows, rows_per_block)) return "";
  return std::to_string(heads) + " heads with " + std::to_string(rows) + " rows each; a CUDA grid holds at most " +
         std::to_string(limit) + " blocks in a row, each of " + std::to_string(rows_per_block) + " rows or more";
}

}  // namespace flash
