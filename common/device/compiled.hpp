// The tile sizes that a kernel file has compiled: which of them a device can run, which is the default, and how one is started.
#pragma once

#include "common/attention/variant.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace flash {

/// A kernel of one size, or the kernels of a pass.
struct CompiledShape {
  int width;  ///< of a tile: d is padded to it
  Tiles tiles;
  int threads;
  std::size_t shared_bytes;
  int min_sm;       ///< the oldest architecture that it is compiled for: 80 for compute capability 8.0
  const char* why;  ///< what speaks for it, in a few words
  void (*start)(const Attention&);
  std::span<const ThreadPart> thread{};  ///< who holds what, for --list
};

/// Those of the narrowest width that holds d that the device can run. The first is the default: the first of them that gives each
/// multiprocessor a block, or else the one with most blocks; the others follow in the order of the table. A block has a tile of
/// queries of a query head; with Pass::backward, of keys of a key/value head.
std::vector<TileChoice> choices(std::span<const CompiledShape>, const Problem&, Pass, const DeviceLimits&);

/// Starts the one that has the tiles of the run.
void start(std::span<const CompiledShape>, const Attention&);

// The same as functions for a Variant, for a table in namespace scope. Static, as the tables of several files have one name: g++ 14 would
// take their functions for one.
template <const auto& shapes>
static std::vector<TileChoice> choices_of(const Problem& p, Pass pass, const DeviceLimits& limits) {
  return choices(shapes, p, pass, limits);
}
template <const auto& shapes>
static void start_one_of(const Attention& a) {
  start(shapes, a);
}

}  // namespace flash
