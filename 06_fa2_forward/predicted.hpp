// What chapter 06 predicts.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/variant.hpp"

#include <string_view>

namespace flash::fa2_forward {

/// (6.6)  `whole_tiles`: the bias of all pairs in the tiles is looked up, seen or not, and ALiBi's slope by each thread for each tile;
/// else that of visible pairs alone.
inline Prediction predicted_elements(const Problem& p, const TileChoice& choice, bool whole_tiles, bool columns_of_Q = true) {
  const Visits v = visits(p, choice.tiles);
  const std::int64_t heads = std::int64_t{p.B} * p.H, Nq = p.Nq, d = p.d;
  std::int64_t biases = 0;
  if (p.bias != BiasKind::none) {
    biases = !whole_tiles ? visible_pairs(p) : p.bias == BiasKind::alibi ? choice.threads * v.tiles : v.pairs;
  }
  return {{"Q", {heads * Nq * d, 0, columns_of_Q}},
          {"K", {heads * v.keys * d, 0}},
          {"V", {heads * v.keys * d, 0}},
          {"O", {0, heads * Nq * d}},
          {"L", {0, heads * Nq}},
          {"bias", {heads * biases, 0}}};
}

inline Prediction predicted(const Variant& v, const Problem& p, Pass, const TileChoice& choice, const DeviceLimits&) {
  for (const std::string_view name : {"short_softmax", "tuned"}) {
    if (v.name == name) return predicted_elements(p, choice, true);
  }
  for (const std::string_view name : {"vector_operands", "async_copies"}) {
    if (v.name == name) return predicted_elements(p, choice, false);
  }
  for (const std::string_view name : {"loop_order", "register_tiles"}) {
    if (v.name == name) return predicted_elements(p, choice, false, false);
  }
  return {};
}

}  // namespace flash::fa2_forward
