// What chapter 04 predicts.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/registry.hpp"

#include <algorithm>
#include <string_view>

namespace flash::fa1_forward {

/// (4.6)  The tiles that fill the shared memory of a block.
inline Tiles predicted_tiles(const FullProblem& p, const DeviceLimits& limits) {
  const auto up = [](int n, int multiple) { return (n + multiple - 1) / multiple * multiple; };
  const int longest = static_cast<int>(limits.shared_bytes / 4) / (4 * (up(p.d, 32) + 4));
  const int Br = std::max(std::min(longest, 256) / 32, 1) * 32;
  return {std::min(Br, up(p.Nq, 32)), std::min(longest / 8 * 8, up(p.Nk, 8))};
}

/// Step 1: each query reads the keys and values that it sees, and a warp as many as its last row sees, an element of all lanes at a time.
/// Rows of Q and O belong to a thread each: a sector per element.
inline Prediction predicted_fused(const FullProblem& p) {
  const std::int64_t heads = std::int64_t{p.B} * p.H, Nq = p.Nq, d = p.d, pairs = visible_pairs(p);
  const std::int64_t broadcasts = visits(p, {.Br = 32, .Bc = 1}).tiles * d;
  const TrafficByTensor moved{{"Q", {heads * Nq * d, 0, heads * Nq * d}},
                              {"K", {heads * pairs * d, 0, heads * broadcasts}},
                              {"V", {heads * pairs * d, 0, heads * broadcasts}},
                              {"O", {0, heads * Nq * d, heads * Nq * d}},
                              {"L", {0, heads * Nq}}};
  return {moved, sectors_of(moved, p), 0, 0};
}

/// (4.7)  With two barriers per pair of tiles.
inline Prediction predicted_forward(const FullProblem& p, const Tiles& tiles) {
  const Visits v = visits(p, tiles);
  const std::int64_t R = v.queries;
  const std::int64_t heads = std::int64_t{p.B} * p.H, Nq = p.Nq, Nk = p.Nk, d = p.d;
  const TrafficByTensor moved{{"Q", {heads * R * d, 0}},
                              {"K", {heads * Nk * d, 0}},
                              {"V", {heads * Nk * d, 0}},
                              {"O", {heads * R * d, heads * (Nq + R) * d}},
                              {"l", {heads * (R + Nq), heads * (Nq + R)}},
                              {"m", {heads * (R + Nq), heads * (Nq + R)}},
                              {"L", {0, heads * Nq}}};
  return {moved, sectors_of(moved, p), 2 * heads * v.tiles, 0};
}

/// Steps 2 and 3: the same elements, with two barriers per tile of keys. Rows of Q and O belong to a thread each, as in step 1, which
/// reads and writes so many columns per access.
inline Prediction predicted_key_tiles(const FullProblem& p, int columns) {
  constexpr Tiles tiles{.Br = 64, .Bc = 32};
  Prediction prediction = predicted_forward(p, tiles);
  for (const char* name : {"Q", "O"}) {
    MemoryTraffic& moved = prediction.tensors[name];
    moved.sectors = (moved.read + moved.written) / columns;
  }
  prediction.sectors = sectors_of(prediction.tensors, p);
  prediction.barriers = 2 * std::int64_t{p.B} * p.H * ((p.Nk + tiles.Bc - 1) / tiles.Bc);
  return prediction;
}

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass, const TileChoice&, const DeviceLimits& limits) {
  if (v.name == std::string_view("fused")) return predicted_fused(p);
  if (v.name == std::string_view("key_tiles")) return predicted_key_tiles(p, 1);
  if (v.name == std::string_view("key_groups")) return predicted_key_tiles(p, 4);
  return v.name == std::string_view("tiled") ? predicted_forward(p, predicted_tiles(p, limits)) : Prediction{};
}

}  // namespace flash::fa1_forward
