// A model of the forward steps of stage 08, independent of their code: what they visit, and what lazy steps do twice.
#pragma once

#include "08_tensor_cores/test/parts.hpp"
#include "common/attention/cost.hpp"
#include "common/harness/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace flash::tensor_test {

/// The score of a masked pair, and the maximum of no scores.
inline constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// d, padded to a width that is compiled.
inline int width_of(const Variant& v, const FullProblem& p) {
  const bool wide = has_options_on_hopper(v) && p.bias == BiasKind::none;
  if (p.d > 192 || (p.d > 128 && !wide)) return 256;
  if (splits_keys(v)) return p.d <= 64 ? 64 : 128;
  if (!is_for_hopper(v)) return (p.d + 31) / 32 * 32;
  if (p.d > 128) return p.d <= 160 ? 160 : 192;
  if (p.d > 96 || (p.d > 64 && p.bias != BiasKind::none)) return 128;
  return p.d <= 64 ? 64 : p.d <= 80 && !has_options_on_hopper(v) ? 80 : 96;
}

/// What a step does, of all batches and heads.
struct Work {
  std::int64_t products = 0;  // multiply-adds
  std::int64_t repeated = 0;  // tiles that a warp computes twice
};

/// Scaled and biased scores, masked. Rows before the first and beyond the last query have Q = 0, and no bias but ALiBi.
class Scores {
 public:
  Scores(const FullProblem& p, const Inputs& inputs) : p_(p), inputs_(inputs) {
    for (int b = 0; b < p.B; ++b) {
      for (int h = 0; h < p.H; ++h) {
        for (int i = 0; i < p.Nq; ++i) {
          for (int j = 0; j < p.Nk; ++j) {
            double dot = 0;
            for (int c = 0; c < p.d; ++c) dot += double{inputs.Q(b, h, i, c)} * double{inputs.K(b, p.kv_head(h), j, c)};
            dots_.push_back(dot);
          }
        }
      }
    }
  }

  double operator()(int b, int h, int i, int j) const {
    if (j >= p_.keys_of(i).end) return minus_infinity;
    double score =
        i >= 0 && i < p_.Nq ? dots_[static_cast<std::size_t>(((b * p_.H + h) * p_.Nq + i) * p_.Nk + j)] * double{p_.scale} : 0;
    if (p_.bias == BiasKind::alibi) {
      score -= double{inputs_.bias(b, h, 0, 0)} * std::abs(i + p_.Nk - p_.Nq - j);
    } else if (p_.bias != BiasKind::none && i < p_.Nq) {
      score += double{inputs_.bias(b, h, i, j)};
    }
    return score;
  }

 private:
  const FullProblem& p_;
  const Inputs& inputs_;
  std::vector<double> dots_;  // [B, H, Nq, Nk]
};

/// The lazy steps' rule (8.7) for the rows of a warp: they keep m until a lane's part of a row of P sums to more than 2^10.
class Maximum {
 public:
  explicit Maximum(int rows) : m_(static_cast<std::size_t>(rows), minus_infinity) {}

  /// Visits tile j, S [rows][keys], in a warp whose rows all see all keys of tiles before `unmasked_tiles`. Is it computed twice? Then
  /// `backoff` more tiles take the maximum at once.
  bool visit(const std::vector<std::vector<double>>& S, int j, int unmasked_tiles, int backoff) {
    lazy_end_ = std::min(lazy_end_, unmasked_tiles);
    const bool exact = !known_ || j >= lazy_end_, twice = !exact && !fits(S);
    if (exact || twice) update_max(S);
    if (twice) lazy_end_ = j - backoff;
    return twice;
  }

 private:
  void update_max(const std::vector<std::vector<double>>& S) {
    known_ = true;
    for (std::size_t r = 0; r < S.size(); ++r) {
      for (const double score : S[r]) m_[r] = std::max(m_[r], score);
      known_ = known_ && m_[r] != minus_infinity;
    }
  }

  bool fits(const std::vector<std::vector<double>>& S) const {
    for (std::size_t r = 0; r < S.size(); ++r) {
      double sums[4] = {};  // of the lanes of a quad
      for (std::size_t j = 0; j < S[r].size(); ++j)
        sums[j % 8 / 2] += std::exp(S[r][j] - (m_[r] == minus_infinity ? 0.0 : m_[r]));
      for (const double sum : sums) {
        if (sum > 1024.0) return false;
      }
    }
    return true;
  }

  std::vector<double> m_;
  bool known_ = false;
  int lazy_end_ = std::numeric_limits<int>::max();  // tiles below this one may keep m
};

/// Adds the work of a tile of Q of one head, which begins at row0. score(i, j): of that head.
template <class Score>
void add_work_of_tile(Work& work, const Variant& v, const FullProblem& p, const Score& score, int row0,
                      const TileChoice& choice) {
  const int Br = choice.tiles.Br, Bc = choice.tiles.Bc;
  const int warps = is_specialized(v) ? Br / 16 : choice.threads / 32, rows = Br / warps;
  const auto tiles_visible_to = [&](int first, int end) {
    return end <= 0 || first >= p.Nq ? 0 : (p.keys_of(std::min(end, p.Nq) - 1).end + Bc - 1) / Bc;
  };
  const int visible_tiles = tiles_visible_to(row0, row0 + Br);
  const bool scales_first = p.bias != BiasKind::none || p.scale <= 0;
  std::vector<Maximum> maxima(static_cast<std::size_t>(warps), Maximum(rows));
  for (int j = visible_tiles - 1; j >= 0; --j) {
    for (int warp = 0; warp < warps; ++warp) {
      const int first = row0 + warp * rows, group = row0 + warp / 4 * 64;
      const bool by_warpgroup = is_from(v, "hopper_forward/6_tall") || has_options_on_hopper(v);
      if (by_warpgroup && j >= tiles_visible_to(group, group + 64)) continue;
      if (is_from(v, "forward/more/options") && j >= tiles_visible_to(first, first + rows)) continue;
      bool twice = false;
      if (is_lazy(v) || is_lazy_in_warps(v)) {
        std::vector<std::vector<double>> S(static_cast<std::size_t>(rows));
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < Bc; ++c) S[static_cast<std::size_t>(r)].push_back(score(first + r, j * Bc + c));
        }
        Maximum& maximum = maxima[static_cast<std::size_t>(warp)];
        twice = maximum.visit(S, j, scales_first ? 0 : p.keys_of(first).end / Bc, is_lazy(v) ? 0 : 8);
      }
      work.repeated += twice;
      work.products += std::int64_t{twice ? 3 : 2} * rows * Bc * width_of(v, p);
    }
  }
}

inline Work work_of(const Variant& v, const FullProblem& p, const Scores& scores, const TileChoice& choice) {
  Work work;
  if (splits_keys(v)) {  // tiles of packed rows, of 16 with 16 keys per warp, or as high as a warpgroup's product
    const int Br = choice.tiles.Br, keys = !is_for_hopper(v) ? choice.threads / 2 : p.d > 128 ? 64 : 128;
    work.products = std::int64_t{p.B} * p.Hkv * split_visits(p, choice.tiles, keys).steps * 2 * Br * keys * width_of(v, p);
    return work;
  }
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) {
      const auto score = [&](int i, int j) { return scores(b, h, i, j); };
      const int Br = choice.tiles.Br, missing = (Br - 1 - (p.Nq + Br - 1) % Br) / 64 * 64;  // of whole warpgroups
      const bool from_the_end = is_for_hopper(v) && !has_options_on_hopper(v);
      for (int row0 = from_the_end ? -missing : 0; row0 < p.Nq; row0 += Br) add_work_of_tile(work, v, p, score, row0, choice);
    }
  }
  return work;
}

}  // namespace flash::tensor_test
