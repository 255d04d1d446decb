// A softmax over tiles of scores in registers: values per row (rows.cuh), and the rule by which products become scores, without
// the work that most tiles do not need. Step 6 of chapter 06 introduces the rule.
#pragma once

#include "common/device/ptx.cuh"
#include "common/device/rows.cuh"

namespace flash {
namespace {

constexpr float LOG2_E = 1.44269504f;

/// How products become scores: scale Q K^T + bias, masked. Made on the host.
struct ScoreRule {
  Problem problem;
  Bias bias;
  bool scale_first;  ///< apply() scales the scores; otherwise `factor` becomes part of the exponent
  float factor;      ///< still to be multiplied after apply(): 1 or the scale

  /// Turns products into scores. S belongs to a head (counted over all batches); it begins at query query0 and key key0.
  /// Transposed: rows are keys, columns queries.
  template <bool Transposed = false, class Tile>
  __device__ void apply(Tile& S, int head, int query0, int key0) const {
    // The position of S's rows is the same for all tiles of a block, except in chapter 07. opaque() stops the compiler from
    // hoisting the addresses of rare tiles into every tile.
    const int i0 = Transposed ? query0 : opaque(query0), j0 = Transposed ? opaque(key0) : key0;
    if (scale_first) scale_and_add_bias<Transposed>(S, opaque(head), i0, j0);
    mask<Transposed>(S, i0, j0);
  }

  /// Only masks, for scores that are not scaled first: i0 is the first query, j0 the first key.
  template <bool Transposed = false, class Tile>
  __device__ void mask(Tile& S, int i0, int j0) const {
    const int end = j0 + (Transposed ? Tile::HEIGHT : Tile::WIDTH);
    if (end > problem.visible_keys(i0)) {  // the first query sees the fewest keys
      S.each_at([&](float& s, int row, int col) {
        if (j0 + (Transposed ? row : col) >= problem.visible_keys(i0 + (Transposed ? col : row))) s = -INFINITY;
      });
    }
  }

  template <bool Transposed, class Tile>
  __device__ void scale_and_add_bias(Tile& S, int head, int i0, int j0) const {
    S.each([&](float& s, int) { s *= problem.scale; });
    if (bias.kind == BiasKind::none) return;
    const Matrix<const float> values = bias.values.head(head / problem.H, head % problem.H);
    if (bias.kind == BiasKind::alibi) {
      const float slope = values(0, 0);
      S.each_at([&](float& s, int row, int col) {
        s -= slope * fabsf(static_cast<float>(i0 + bias.diagonal - j0 + (Transposed ? col - row : row - col)));
      });
    } else {
      S.each_at([&](float& s, int row, int col) {
        const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
        s += i < problem.Nq && j < problem.Nk ? static_cast<float>(values(i, j)) : 0.0f;
      });
    }
  }
};

/// Whether scores are scaled before the maximum is taken: with a bias, which is added to scaled scores; with a scale that is
/// not positive, which would turn the maximum into a minimum; and with a scale whose product with log2 e might overflow.
inline bool scales_first(const Problem& p) { return p.bias != BiasKind::none || !(p.scale > 0.0f && p.scale < 1e30f); }

/// The rule for a run.
inline ScoreRule score_rule(const Attention& a, bool always_scale_first = false) {
  const Problem& p = a.problem;
  const bool scale_first = always_scale_first || scales_first(p);
  return {p, bias_of(a), scale_first, scale_first ? 1.0f : p.scale};
}

}  // namespace
}  // namespace flash
