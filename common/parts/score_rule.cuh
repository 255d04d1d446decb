// How the products Q K^T of a tile in registers become scores: scaled, with a bias and masked,
// without the work that most tiles do not need. For the general kernels in more/, of 06, 07 and 08;
// step 5 of chapter 06 has the mask of the plain problem. Transposed is for the backward pass of
// 08, where rows are keys; Slope and OPTIONS are for chapter 09's softcap and window.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/parts/bias.cuh"
#include "common/parts/rows.cuh"

#include <type_traits>

namespace flash {
namespace {

/// For kernels without a backward pass, which need no derivatives of the softcap.
struct NoSlope {};

/// Where the scale is multiplied into a score.
enum class Scaling {
  /// The usual case: scores stay products, and e^(scale (s - m)) scales them.
  in_exponent,
  /// Before a maximum is taken: with a bias or a softcap; with a scale that is not positive, for
  /// which the largest product is not the largest score; or if scale log2 e might overflow.
  first,
  /// In 16 bits, for a softcap c: scores are tanh(scale q.k / c), and the exponent multiplies by c.
  cap_in_exponent
};

/// How products become scores: scale Q K^T + bias, masked; for an OptionsProblem also capped, and
/// limited to a window. Made on the host.
template <class SomeProblem>
struct ScoreRuleFor {
  static constexpr bool OPTIONS = std::is_same_v<SomeProblem, OptionsProblem>, RAGGED = false;
  SomeProblem problem;
  Bias bias;
  Scaling scaling;
  /// Exponents multiply scores by it: the scale, 1 if that came first, or the cap.
  float late_scale;

  /// Whether the backward pass subtracts L before it multiplies by log2 e: scaled scores may be
  /// large. (The forward pass sees from the maximum whether they are.)
  __device__ bool subtract_first() const { return scaling == Scaling::first; }

  /// Turns products into scores. S belongs to a head (counted over all batches); it begins at query
  /// query0 and key key0. Transposed: rows are keys, columns queries. `slope`: where
  /// the derivatives of the softcap go, if there is one, by slope(row, col) or by slope.store(all).
  template <bool Transposed = false, class Scores, class Slope = NoSlope>
  __device__ void apply(Scores& S, int head, int query0, int key0, const Slope& slope = {}) const {
    // What stays the same in a block's loop, its queries or, transposed, its keys, is opaque(): no
    // register keeps addresses that few tiles need.
    const int i0 = Transposed ? query0 : opaque(query0), j0 = Transposed ? opaque(key0) : key0;
    if (scaling != Scaling::in_exponent)
      scale_and_add_bias<Transposed>(S, opaque(head), i0, j0, slope);
    mask<Transposed>(S, i0, j0);
  }

  /// Whether none of `rows` queries from i0 on sees any of `cols` keys from j0 on.
  __device__ bool hides(int i0, int rows, int j0, int cols) const {
    i0 = opaque(i0);  // no register keeps the bounds for the next tile
    const int last = min(i0 + rows, problem.Nq) - 1;
    return last < i0 || j0 >= problem.end_key(last) || j0 + cols <= problem.first_key(i0);
  }

  /// Only masks, for scores that exponents scale: i0 is the first query, j0 the first key.
  template <bool Transposed = false, class Scores>
  __device__ void mask(Scores& S, int i0, int j0) const {
    // The first query's keys end first; with a window, the last query's keys begin last.
    const int end = j0 + (Transposed ? Scores::HEIGHT : Scores::WIDTH);
    bool at_edge = end > problem.end_key(i0);
    if constexpr (OPTIONS) {
      at_edge =
          at_edge || j0 < problem.first_key(i0 + (Transposed ? Scores::WIDTH : Scores::HEIGHT) - 1);
    }
    if (at_edge) {
      S.each_at([&](float& s, int row, int col) {
        const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
        if constexpr (OPTIONS) {
          if (j >= problem.Nk || j - i > problem.highest() || j - i < problem.lowest())
            s = -INFINITY;
        } else {
          if (j >= problem.end_key(i)) s = -INFINITY;
        }
      });
    }
  }

  template <bool Transposed, class Scores, class Slope>
  __device__ void scale_and_add_bias(Scores& S, int head, int i0, int j0,
                                     const Slope& slope) const {
    scale(S, slope);
    if (bias.kind == BiasKind::none) return;
    const Matrix<const float> values = bias.values.head(head / problem.H, head % problem.H);
    if (bias.kind == BiasKind::alibi) {
      const float slope_of_alibi = values(0, 0);
      S.each_at([&](float& s, int row, int col) {
        s -= slope_of_alibi * fabsf(static_cast<float>(i0 + bias.diagonal - j0 +
                                                       (Transposed ? col - row : row - col)));
      });
    } else {
      S.each_at([&](float& s, int row, int col) {
        const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
        s += i < problem.Nq && j < problem.Nk ? static_cast<float>(values(i, j)) : 0.0f;
      });
    }
  }

  template <class Scores, class Slope>
  __device__ void scale(Scores& S, [[maybe_unused]] const Slope& slope) const {
    if constexpr (OPTIONS) {
      if (problem.softcap != 0.0f) return cap(S, slope);
    }
    S.each([&](float& s, int) { s *= problem.scale; });
  }

  /// (9.7), (9.8)  Products s become tanh(scale s / c), `slope` takes the derivatives, and the
  /// scores are c times as much.
  template <class Scores, class Slope>
  __device__ void cap(Scores& S, [[maybe_unused]] const Slope& slope) const {
    const float c = opaque(problem.softcap);  // no register keeps its quotient for the next tile
    if constexpr (!requires { Scores::ROW_RUN; }) {  // not a ThreadTile, which is fp32: fragments
      // One instruction, about as accurate as a score rounded to 16 bits.
      // Finite even for a large scale and a small cap, because infinity times a product of 0 would
      // be NaN.
      const float factor = fmaxf(-0x1p127f, fminf(problem.scale / c, 0x1p127f));
      S.each([&](float& s, int) { s = tanh_approx(factor * s); });
    } else {
      const float inverse = 1.0f / c;
      S.each([&](float& s, int) { s = tanhf(problem.scale * s * inverse); });
    }
    if constexpr (requires { slope.store(S); }) {
      Scores slopes = S;
      slopes.each([&](float& t, int) { t = 1.0f - t * t; });
      slope.store(slopes);
    } else if constexpr (!std::is_same_v<Slope, NoSlope>) {
      S.each_at([&](float t, int row, int col) { slope(row, col) = 1.0f - t * t; });
    }
    if (scaling == Scaling::first) S.each([&](float& t, int) { t *= c; });
  }
};

/// For a kernel that knows no options, or runs without any; and for one that runs with them.
using ScoreRule = ScoreRuleFor<Problem>;
using OptionsRule = ScoreRuleFor<OptionsProblem>;

/// For a problem without a softcap: must the scale be multiplied first?
inline bool scale_first(const Problem& p) {
  return p.bias != BiasKind::none || !(p.scale > 0.0f && p.scale < 1e30f);
}

/// The rule for a run. A softcap applies to scaled scores, too. In 16 bits it then multiplies them
/// in the exponent, unless a bias is added before.
template <class Rule = ScoreRule>
Rule score_rule(const Attention& a) {
  const FullProblem& p = a.problem;
  if (p.softcap != 0.0f && p.dtype != Dtype::fp32 && p.bias == BiasKind::none)
    return {p, bias_of(a), Scaling::cap_in_exponent, p.softcap};
  if (p.softcap != 0.0f || scale_first(p)) return {p, bias_of(a), Scaling::first, 1.0f};
  return {p, bias_of(a), Scaling::in_exponent, p.scale};
}

}  // namespace
}  // namespace flash
