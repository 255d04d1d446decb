#include "common/parts/launch_shape.hpp"

namespace flash {

std::string refuse_grid_beyond(const Problem& p, int rows_per_block) {
  constexpr std::int64_t limit = 65535;
  const std::int64_t layers = std::int64_t{p.B} * p.H;
  if (layers > limit) {
    return "--batch " + std::to_string(p.B) + " times --heads " + std::to_string(p.H) + " is " +
           std::to_string(layers) + "; a CUDA grid holds at most " + std::to_string(limit);
  }
  const int longest = p.Nq > p.Nk ? p.Nq : p.Nk;
  if (longest > limit * rows_per_block) {
    return std::to_string(longest) + " queries or keys; a CUDA grid holds at most " +
           std::to_string(limit) + " rows of blocks of " + std::to_string(rows_per_block);
  }
  return "";
}

std::string refuse_row_of_blocks(std::int64_t heads, int rows, int rows_per_block) {
  constexpr std::int64_t limit = 2147483647;
  if (heads <= limit / blocks_for(rows, rows_per_block)) return "";
  return std::to_string(heads) + " heads with " + std::to_string(rows) +
         " rows each; a CUDA grid holds at most " + std::to_string(limit) +
         " blocks in a row, each of " + std::to_string(rows_per_block) + " rows or more";
}

}  // namespace flash
