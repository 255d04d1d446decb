// The score rule: how the products Q K^T of a tile in registers become scores, scaled, with a bias and masked, without the work
// that most tiles do not need. Step 6 of chapter 06 introduces it, with everything that is a template parameter at its default:
// Transposed belongs to the backward pass of chapter 08, where rows are keys, Slope and OPTIONS to chapter 09's softcap and window.
#pragma once

#include "common/device/ptx.cuh"
#include "common/device/rows.cuh"

#include <type_traits>

namespace flash {
namespace {

constexpr float LOG2_E = 1.44269504f;

/// Where a kernel without a backward pass leaves the derivatives of the softcap.
struct Nowhere {};

/// How products become scores: scale Q K^T + bias, masked; for an OptionsProblem also capped, and limited to a window. Made
/// on the host.
template <class SomeProblem>
struct ScoreRuleFor {
  static constexpr bool OPTIONS = std::is_same_v<SomeProblem, OptionsProblem>, RAGGED = false;
  SomeProblem problem;
  Bias bias;
  bool scale_first;  ///< apply() scales the scores; otherwise `late_scale` becomes part of the exponent
  float late_scale;  ///< still to be multiplied after apply(): 1 or the scale

  /// Turns products into scores. S belongs to a head (counted over all batches); it begins at query query0 and key key0.
  /// Transposed: rows are keys, columns queries. `slope`: takes the derivative of the softcap, if there is one, as
  /// slope(row, col).
  template <bool Transposed = false, class Tile, class Slope = Nowhere>
  __device__ void apply(Tile& S, int head, int query0, int key0, const Slope& slope = {}) const {
    // S's rows keep their position in all tiles of a block, unless it loops over queries, as in chapter 07. opaque() stops the
    // compiler from computing addresses that few tiles need before the loop, where they would occupy registers.
    const int i0 = Transposed ? query0 : opaque(query0), j0 = Transposed ? opaque(key0) : key0;
    if (scale_first) scale_and_add_bias<Transposed>(S, opaque(head), i0, j0, slope);
    mask<Transposed>(S, i0, j0);
  }

  /// Only masks, for scores that are not scaled first: i0 is the first query, j0 the first key.
  template <bool Transposed = false, class Tile>
  __device__ void mask(Tile& S, int i0, int j0) const {
    const int end = j0 + (Transposed ? Tile::HEIGHT : Tile::WIDTH);
    bool at_edge = end > problem.end_key(i0);  // the first query's keys end first,
    if constexpr (OPTIONS) {                   // the last query's keys begin last
      at_edge = at_edge || j0 < problem.first_key(i0 + (Transposed ? Tile::WIDTH : Tile::HEIGHT) - 1);
    }
    if (at_edge) {
      S.each_at([&](float& s, int row, int col) {
        const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
        if (j >= problem.end_key(i)) s = -INFINITY;
        if constexpr (OPTIONS) {
          if (j < problem.first_key(i)) s = -INFINITY;
        }
      });
    }
  }

  template <bool Transposed, class Tile, class Slope>
  __device__ void scale_and_add_bias(Tile& S, int head, int i0, int j0, [[maybe_unused]] const Slope& slope) const {
    S.each([&](float& s, int) { s *= problem.scale; });
    if constexpr (OPTIONS) {
      if (problem.softcap != 0.0f) cap(S, slope);
    }
    if (bias.kind == BiasKind::none) return;
    const Matrix<const float> values = bias.values.head(head / problem.H, head % problem.H);
    if (bias.kind == BiasKind::alibi) {
      const float slope_of_alibi = values(0, 0);
      S.each_at([&](float& s, int row, int col) {
        s -= slope_of_alibi * fabsf(static_cast<float>(i0 + bias.diagonal - j0 + (Transposed ? col - row : row - col)));
      });
    } else {
      S.each_at([&](float& s, int row, int col) {
        const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
        s += i < problem.Nq && j < problem.Nk ? static_cast<float>(values(i, j)) : 0.0f;
      });
    }
  }

  /// (9.7), (9.8)  Scaled scores become c tanh(s / c), and `slope` takes the derivatives.
  template <class Tile, class Slope>
  __device__ void cap(Tile& S, [[maybe_unused]] const Slope& slope) const {
    const float c = problem.softcap, inverse = 1.0f / c;
    S.each([&](float& s, int) { s = c * tanhf(s * inverse); });
    if constexpr (!std::is_same_v<Slope, Nowhere>) {
      S.each_at([&](float y, int row, int col) { slope(row, col) = 1.0f - y * inverse * (y * inverse); });
    }
  }
};

/// For a kernel that knows no options, or runs without any; and for one that runs with them.
using ScoreRule = ScoreRuleFor<Problem>;
using OptionsRule = ScoreRuleFor<OptionsProblem>;

/// Whether scores are scaled before the maximum is taken: with a bias, which is added to scaled scores; with a scale that is not
/// positive, which would turn the maximum into a minimum; and with a scale whose product with log2 e might overflow.
inline bool scales_first(const Problem& p) { return p.bias != BiasKind::none || !(p.scale > 0.0f && p.scale < 1e30f); }

/// The rule for a run.
template <class Rule = ScoreRule>
Rule score_rule(const Attention& a, bool always_scale_first = false) {
  const FullProblem& p = a.problem;
  // A softcap applies to scaled scores, too.
  const bool scale_first = always_scale_first || scales_first(p) || p.softcap != 0.0f;
  return {p, bias_of(a), scale_first, scale_first ? 1.0f : p.scale};
}

}  // namespace
}  // namespace flash
