// The tile sizes that a kernel file has compiled: which ones a device can run, which one is the
// default, and how to start one. For the tables in shapes.hpp of 06, 07 and 08.
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
  int min_sm;  ///< the oldest architecture that it is compiled for: 80 for compute capability 8.0
  const char* why;  ///< why to choose it, in a few words
  void (*start)(const Attention&);
  std::span<const ThreadPart> thread{};  ///< which thread holds what, for --list
  int per_sm = 1;                        ///< blocks that a multiprocessor runs at a time
  /// Of a full multiprocessor, relative to the first of the width; 0: 3/4 of the previous shape's.
  double speed = 0;
};

/// The sizes of the narrowest width that holds d which the device can run: the default, which has
/// the shortest estimated_time() of compiled_shapes.cpp, then the others in table order. A block has a
/// tile of queries of a query head; with Pass::backward, of keys of a key/value head.
std::vector<TileChoice> choices(std::span<const CompiledShape>, const Problem&, Pass,
                                const DeviceLimits&);

/// The estimated time of the default size, in units that are the same for all problems of a width;
/// infinite if no size fits.
double least_time(std::span<const CompiledShape>, const Problem&, Pass, const DeviceLimits&);

/// Starts the size that the run has chosen.
void start(std::span<const CompiledShape>, const Attention&);

// The same as functions for a Variant, for a table in namespace scope. They are static because the
// tables of several files share a name, and g++ 14 would merge their functions.
template <const auto& shapes>
static std::vector<TileChoice> choices_of(const Problem& p, Pass pass, const DeviceLimits& limits) {
  return choices(shapes, p, pass, limits);
}
template <const auto& shapes>
static void start_one_of(const Attention& a) {
  start(shapes, a);
}

}  // namespace flash
