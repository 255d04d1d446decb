// What chapter 05 predicts.
#pragma once

#include "04_fa1_forward/predicted.hpp"

namespace flash::fa1_backward {

/// (5.8)  The tiles that fill the shared memory of a block.
inline Tiles predicted_tiles(const FullProblem& p, const DeviceLimits& limits) {
  const auto up = [](int n, int multiple) { return (n + multiple - 1) / multiple * multiple; };
  const int padded = up(p.d, 32) + 4;
  for (int Bc = std::min(up(std::max(p.Nk, p.Nq - p.Nq / 2), 16), 64); Bc > 0; Bc -= 16) {
    const int Br = 2 * Bc, floats = (4 * Bc + 2 * Br) * padded + 2 * Br * (Bc + 4);
    if (4 * static_cast<std::size_t>(floats) <= limits.shared_bytes) return {Br, Bc};
  }
  return {32, 8};
}

/// (5.9)  With three barriers per pair of tiles. The steps move the same.
inline Prediction predicted(const Variant& v, const FullProblem& p, Pass pass, const TileChoice&, const DeviceLimits& limits) {
  if (v.name != std::string_view("phases") && v.name != std::string_view("grouped")) return {};
  if (pass == Pass::forward) return fa1_forward::predicted_forward(p, fa1_forward::predicted_tiles(p, limits));
  const Visits visited = visits(p, predicted_tiles(p, limits));
  const std::int64_t R = visited.queries;
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_heads = std::int64_t{p.B} * p.Hkv, Nq = p.Nq, Nk = p.Nk, d = p.d;
  // A thread reads its row of O, and adds to its row of dQ, 16 bytes at a time: half a sector.
  const TrafficByTensor moved{
      {"Q", {heads * R * d, 0}},      {"O", {heads * R * d, 0, heads * R * d / 4}},
      {"dO", {heads * R * d, 0}},     {"l", {heads * R, 0}},
      {"m", {heads * R, 0}},          {"dQ", {heads * R * d, heads * (Nq + R) * d, heads * (Nq * d / 8 + 2 * R * d / 4)}},
      {"K", {kv_heads * Nk * d, 0}},  {"V", {kv_heads * Nk * d, 0}},
      {"dK", {0, kv_heads * Nk * d}}, {"dV", {0, kv_heads * Nk * d}}};
  return {moved, sectors_of(moved, p), 3 * heads * visited.tiles, 0};
}

}  // namespace flash::fa1_backward
