// What chapters 01 to 03 predict: kernels that keep S and P in HBM move these elements.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/variant.hpp"

#include <string_view>

namespace flash::naive {

/// Of 32 rows or columns.
inline std::int64_t tiles(std::int64_t n) { return (n + 31) / 32; }

/// (1.6)  A product in tiles reads each operand once for every tile of the other's rows or columns. `reads_of_S`: of the softmax;
/// `rows_apart`: it gives a row to a thread.
inline Prediction predicted_forward(const Problem& p, std::int64_t reads_of_S, bool rows_apart = true) {
  const std::int64_t heads = std::int64_t{p.B} * p.H, Nq = p.Nq, Nk = p.Nk, d = p.d, scores = heads * Nq * Nk;
  const std::int64_t key_rows = heads * tiles(Nq) * Nk * d;
  return {{"Q", {heads * tiles(Nk) * Nq * d, 0}},
          {"K", {key_rows, 0}},
          {"bias", {p.bias == BiasKind::none ? 0 : heads * visible_pairs(p), 0}},
          {"S", {reads_of_S * scores, scores, rows_apart}},
          {"P", {tiles(d) * scores, scores, rows_apart}},
          {"V", {key_rows, 0}},
          {"O", {0, heads * Nq * d}},
          {"L", {0, heads * Nq}}};
}

inline Prediction predicted_backward(const Problem& p) {
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_heads = std::int64_t{p.B} * p.Hkv, Nq = p.Nq, Nk = p.Nk, d = p.d,
                     scores = heads * Nq * Nk;
  const std::int64_t query_rows = heads * tiles(Nk) * Nq * d;  // a [Nq, d] operand, read once per tile of keys
  const std::int64_t key_rows = heads * tiles(Nq) * Nk * d;    // a [Nk, d] operand, read once per tile of queries
  const std::int64_t square = tiles(d) * scores;               // an [Nq, Nk] operand, read once per tile of d
  return {{"P", {square + 2 * scores, 0, true}},
          {"dO", {2 * query_rows, 0}},
          {"V", {key_rows, 0}},
          {"dP", {2 * scores, scores, true}},
          {"dS", {2 * square, scores, true}},
          {"K", {key_rows, 0}},
          {"Q", {query_rows, 0}},
          {"dQ", {0, heads * Nq * d}},
          {"dK", {0, kv_heads * Nk * d}},
          {"dV", {0, kv_heads * Nk * d}}};
}

inline Prediction predicted(const Variant& v, const Problem& p, Pass pass, const TileChoice&, const DeviceLimits&) {
  if (v.name != std::string_view("naive")) return {};
  return pass == Pass::forward ? predicted_forward(p, 2) : predicted_backward(p);
}

}  // namespace flash::naive
