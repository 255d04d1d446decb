// What chapter 06 predicts.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/variant.hpp"

#include <bit>
#include <string_view>

namespace flash::fa2_forward {

/// The steps, in the order in which the kernels change.
enum class Step { loop_order, register_tiles, tile_types, async_copies, vector_operands, short_softmax, tuned };

/// Per head, of all warps. Lanes that share rows reduce them by halves, a shuffle per row: the maximum in every tile, the sum once per
/// tile of Q. One __syncwarp() before P is read; the last step has two more between chunks of 64 keys of P.
inline std::int64_t warp_operations(const FullProblem& p, const TileChoice& choice, Step step) {
  if (step == Step::loop_order) return 0;
  const ThreadPart& S = choice.thread.front();
  const int halvings = std::countr_zero(static_cast<unsigned>(S.lanes));
  const std::int64_t shuffles = std::int64_t{S.rows} * halvings;
  const std::int64_t chunks = step == Step::tuned ? (choice.tiles.Bc + 63) / 64 : 1;
  const std::int64_t tiles_of_Q = (p.Nq + choice.tiles.Br - 1) / choice.tiles.Br;
  return choice.threads / 32 * (visits(p, choice.tiles).tiles * (shuffles + 2 * chunks - 1) + tiles_of_Q * shuffles);
}

/// (6.6)  From step 6 on, the kernels read the bias of every pair in a tile, visible or not (ALiBi: one slope per thread and tile); the
/// steps before read it for visible pairs alone. Two barriers per pair of tiles; step 1 has two more per tile of Q.
inline Prediction predicted_forward(const FullProblem& p, const TileChoice& choice, Step step) {
  const Visits v = visits(p, choice.tiles);
  const bool whole_tiles = step >= Step::short_softmax;
  const std::int64_t heads = std::int64_t{p.B} * p.H, Nq = p.Nq, d = p.d;
  std::int64_t biases = 0;
  if (p.bias != BiasKind::none) {
    biases = !whole_tiles ? visible_pairs(p) : p.bias == BiasKind::alibi ? choice.threads * v.tiles : v.pairs;
  }
  MovedTensors moved{{"Q", {heads * Nq * d, 0}}, {"K", {heads * v.keys * d, 0}}, {"V", {heads * v.keys * d, 0}},
                     {"O", {0, heads * Nq * d}}, {"L", {0, heads * Nq}},         {"bias", {heads * biases, 0}}};
  if (step >= Step::vector_operands) moved["Q"].sectors = heads * Nq * d;  // read along columns, to be stored transposed
  // The lanes that write L have 4 neighbouring rows in steps 2 to 4, and later every fourth row.
  if (step != Step::loop_order) moved["L"].sectors = heads * Nq / (step < Step::vector_operands ? 4 : 2);
  const std::int64_t tiles_of_Q = step == Step::loop_order ? (p.Nq + choice.tiles.Br - 1) / choice.tiles.Br : 0;
  // An asynchronous copy that only fills with zeros reads nothing, yet its source address counts as a sector.
  const bool copies_zeros = step >= Step::async_copies && (p.Nk % choice.tiles.Bc != 0 || p.d % 32 != 0);
  const auto sectors = copies_zeros ? std::nullopt : sectors_of(moved, p);
  return {moved, sectors, 2 * heads * (v.tiles + tiles_of_Q), heads * warp_operations(p, choice, step)};
}

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass, const TileChoice& choice, const DeviceLimits&) {
  constexpr std::string_view names[] = {"loop_order",      "register_tiles", "tile_types", "async_copies",
                                        "vector_operands", "short_softmax",  "tuned"};
  for (int step = 0; step < 7; ++step) {
    if (v.name == names[step]) return predicted_forward(p, choice, static_cast<Step>(step));
  }
  return {};
}

}  // namespace flash::fa2_forward
