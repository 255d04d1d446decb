#include "common/device/compiled.hpp"

#include "common/device/grid.hpp"

#include <algorithm>
#include <stdexcept>

namespace flash {
namespace {

/// Those that the device can run of the narrowest width that holds d and has any.
std::vector<CompiledShape> fitting(std::span<const CompiledShape> shapes, int d, const DeviceLimits& limits) {
  std::vector<CompiledShape> fit;
  for (const CompiledShape& shape : shapes) {
    if (shape.width < d || shape.shared_bytes > limits.shared_bytes || shape.min_sm > limits.sm) continue;
    if (!fit.empty() && shape.width < fit.front().width) fit.clear();
    if (fit.empty() || shape.width == fit.front().width) fit.push_back(shape);
  }
  return fit;
}

}  // namespace

std::vector<TileChoice> choices(std::span<const CompiledShape> shapes, const Problem& p, Pass pass,
                                const DeviceLimits& limits) {
  std::vector<TileChoice> fit;
  for (const CompiledShape& shape : fitting(shapes, p.d, limits)) {
    fit.push_back({shape.tiles, shape.threads, shape.shared_bytes, shape.why, {shape.thread.begin(), shape.thread.end()}});
  }
  const auto blocks = [&](const TileChoice& choice) {
    return pass == Pass::forward ? std::int64_t{blocks_for(p.Nq, choice.tiles.Br)} * p.B * p.H
                                 : std::int64_t{blocks_for(p.Nk, choice.tiles.Bc)} * p.B * p.Hkv;
  };
  auto best =
      std::find_if(fit.begin(), fit.end(), [&](const auto& choice) { return blocks(choice) >= limits.multiprocessors; });
  if (best == fit.end()) {
    best = std::max_element(fit.begin(), fit.end(), [&](const auto& a, const auto& b) { return blocks(a) < blocks(b); });
  }
  if (best != fit.end()) std::rotate(fit.begin(), best, best + 1);
  return fit;
}

void start(std::span<const CompiledShape> shapes, const Attention& a) {
  for (const CompiledShape& shape : fitting(shapes, a.problem.d, a.limits)) {
    if (shape.tiles == a.tiles) return shape.start(a);
  }
  throw std::logic_error("no kernel is compiled for tiles of " + std::to_string(a.tiles.Br) + " x " +
                         std::to_string(a.tiles.Bc) + " at d = " + std::to_string(a.problem.d));
}

}  // namespace flash
