#include "common/parts/compiled_shapes.hpp"

#include "common/parts/launch_shape.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace flash {
namespace {

/// Those that the device can run of the narrowest width that holds d and has any. Each has a speed.
std::vector<CompiledShape> fitting(std::span<const CompiledShape> shapes, int d,
                                   const DeviceLimits& limits) {
  std::vector<CompiledShape> fit;
  for (CompiledShape shape : shapes) {
    if (shape.width < d || shape.shared_bytes > limits.shared_bytes || shape.min_sm > limits.sm)
      continue;
    if (!fit.empty() && shape.width < fit.front().width) fit.clear();
    if (!fit.empty() && shape.width > fit.front().width) continue;
    if (shape.speed == 0) shape.speed = fit.empty() ? 1 : 0.75 * fit.back().speed;
    fit.push_back(shape);
  }
  return fit;
}

/// How long the GPU is busy, in units that are the same for all shapes of a width: rows of a tile
/// times rows of the other operand, at speed 1. With equal blocks time is counted in waves. Under a
/// mask it is the average over the multiprocessors, or the longest block, or the shortest ones where
/// most run, whichever is longest.
double estimated_time(const CompiledShape& shape, const Problem& p, Pass pass,
                      int multiprocessors) {
  const bool forward = pass == Pass::forward;
  const int rows = forward ? shape.tiles.Br : shape.tiles.Bc,
            step = forward ? shape.tiles.Bc : shape.tiles.Br;
  // A block's beginning and end, in rows of its loop (H200).
  const double start = std::max(272.0, 192 + 1.25 * step);
  const int tiles = static_cast<int>(blocks_for(forward ? p.Nq : p.Nk, rows));
  const double heads = static_cast<double>(p.B) * (forward ? p.H : p.Hkv);
  double all = 0, longest = 0, shortest = std::numeric_limits<double>::infinity();
  for (int tile = 0; tile < (p.causal ? tiles : 1); ++tile) {  // without a mask all are alike
    const std::int64_t first = std::int64_t{tile} * rows;
    const int seen =
        forward ? p.visible_keys(static_cast<int>(std::min<std::int64_t>(first + rows, p.Nq)) - 1)
                : p.Nq - p.first_query(static_cast<int>(first));
    const double loop =
        static_cast<double>(blocks_for(seen, step)) * step * (forward ? 1 : p.group_size());
    const double block = rows * (loop + start);
    all += heads * block;
    longest = std::max(longest, block);
    shortest = std::min(shortest, block);
  }
  // A multiprocessor with fewer blocks than fit is slower: it hides latencies less well. Measured
  // with two and three that fit.
  const int fit = shape.per_sm;
  const auto speed_with = [&](int blocks) {
    return shape.speed * blocks / (blocks + 2) * (fit + 2) / fit;
  };
  const int per_multiprocessor = static_cast<int>(std::ceil(tiles * heads / multiprocessors));
  if (p.causal) {
    const double busiest = std::max(all / multiprocessors, per_multiprocessor * shortest);
    return std::max(busiest / shape.speed, longest / speed_with(1));
  }
  const int rest = per_multiprocessor % fit;
  return longest *
         ((per_multiprocessor - rest) / shape.speed + (rest > 0 ? rest / speed_with(rest) : 0));
}

}  // namespace

std::vector<TileChoice> choices(std::span<const CompiledShape> shapes, const Problem& p, Pass pass,
                                const DeviceLimits& limits) {
  std::vector<CompiledShape> fit = fitting(shapes, p.d, limits);
  const auto time = [&](const CompiledShape& shape) {
    return estimated_time(shape, p, pass, limits.multiprocessors);
  };
  const auto best = std::min_element(
      fit.begin(), fit.end(), [&](const auto& a, const auto& b) { return time(a) < time(b); });
  if (best != fit.end()) std::rotate(fit.begin(), best, best + 1);
  std::vector<TileChoice> list;
  for (const CompiledShape& shape : fit) {
    list.push_back({shape.tiles,
                    shape.threads,
                    shape.shared_bytes,
                    shape.why,
                    {shape.thread.begin(), shape.thread.end()}});
  }
  return list;
}

double least_time(std::span<const CompiledShape> shapes, const Problem& p, Pass pass,
                  const DeviceLimits& limits) {
  double least = std::numeric_limits<double>::infinity();
  for (const CompiledShape& shape : fitting(shapes, p.d, limits))
    least = std::min(least, estimated_time(shape, p, pass, limits.multiprocessors));
  return least;
}

void start(std::span<const CompiledShape> shapes, const Attention& a) {
  for (const CompiledShape& shape : fitting(shapes, a.problem.d, a.limits)) {
    if (shape.tiles == a.tiles) return shape.start(a);
  }
  throw std::logic_error("no kernel is compiled for tiles of " + std::to_string(a.tiles.Br) +
                         " x " + std::to_string(a.tiles.Bc) +
                         " at d = " + std::to_string(a.problem.d));
}

}  // namespace flash
