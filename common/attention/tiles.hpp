// Tile sizes: how many rows of Q (Br) and of K, V (Bc) a block works on at a time.
#pragma once

#include "common/machine/types.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace flash {

/// Br rows of Q and Bc rows of K and V, as in the FlashAttention papers.
struct Tiles {
  int Br = 0, Bc = 0;
  friend bool operator==(const Tiles&, const Tiles&) = default;
};

/// What a thread holds of a matrix in registers: rows x cols numbers. `lanes` threads share a row; of neighbouring rows a thread
/// takes row_run at a time, of columns col_run.
struct ThreadPart {
  const char* matrix;
  int rows, cols, lanes, row_run, col_run;
};

/// One of the tile sizes that a kernel file has compiled.
struct TileChoice {
  Tiles tiles;
  int threads = 0;                   ///< of a block
  std::size_t shared_bytes = 0;      ///< dynamic shared memory of a block
  std::string why;                   ///< why to choose it, in a few words
  std::vector<ThreadPart> thread{};  ///< where a kernel says so
};

}  // namespace flash
