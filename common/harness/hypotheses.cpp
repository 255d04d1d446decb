#include "common/harness/hypotheses.hpp"

#include "common/attention/option_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

namespace flash {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// ln of the largest fp32 number, and of the smallest normal one, below which exp loses bits and in the end everything.
constexpr float exp_overflows_beyond = 88.72f, exp_underflows_below = -87.34f;

/// "" or which option of the problem the results leave out.
std::string without_an_option(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const Sample& sample) {
  const auto solve = [&](const FullProblem& other) { return check_results(other, inputs, Pass::forward, got, sample).passed; };
  const auto scaled = [&](float scale) {
    FullProblem other = p;
    other.scale = scale;
    return p.scale != 1.0f && solve(other);
  };
  if (scaled(1.0f)) return "o and lse are right for scale = 1: the scores are not multiplied by scale";
  if (scaled(p.scale * p.scale)) return "o and lse are right for scale squared: the scores are multiplied by scale twice";
  for (const ProblemOption& option : problem_options()) {
    if (holds<int>(option) || holds<Dtype>(option) || option.named == Named::of_inputs || !is_set(option, p)) continue;
    FullProblem other = without(option, p);
    if (other.score == Score::dot) other.values = Values::tangent;
    if (solve(other)) return std::string("o and lse are right without ") + option.name + ": it is not applied";
  }
  return "";
}

/// "o and lse are" or "lse is" (right for another problem), or "".
std::string right_tensors(const CheckReport& check) {
  if (check.passed) return "o and lse are";
  const auto lse = std::ranges::find(check.tensors, "lse", &TensorCheck::tensor);
  return lse != check.tensors.end() && lse->passed ? "lse is" : "";
}

/// What is right for the problem with another mask. `sees(i, j)`: does query i see key j?
template <class Sees>
std::string solves_mask(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const Sample& sample,
                        Sees&& sees) {
  FullProblem other = p;
  Inputs masked = inputs;
  const bool has_bias = p.bias != BiasKind::none;
  other.causal = false;
  other.bias = BiasKind::matrix;
  if (!has_bias) other.bias_per_batch = other.bias_per_head = false;
  masked.bias = HostTensor<float>({other.bias_per_batch ? p.B : 1, other.bias_per_head ? p.H : 1, p.Nq, p.Nk});
  for (std::int64_t b = 0; b < masked.bias.shape[0]; ++b) {
    for (std::int64_t h = 0; h < masked.bias.shape[1]; ++h) {
      for (int i = 0; i < p.Nq; ++i) {
        for (int j = 0; j < p.Nk; ++j)
          masked.bias(b, h, i, j) = sees(i, j) ? (has_bias ? inputs.bias(b, h, i, j) : 0.0f) : -infinity;
      }
    }
  }
  return right_tensors(check_results(other, masked, Pass::forward, got, sample));
}

/// "" or which other keys the queries see.
std::string other_keys(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const Sample& sample) {
  const int own = p.Nk - p.Nq;  // of query 0
  std::string right;
  const auto solve = [&](auto&& sees) { return !(right = solves_mask(p, inputs, got, sample, sees)).empty(); };
  if (p.causal && solve([&](int i, int j) { return j <= i + own + 1; }))
    return right + " right for queries that see one key more: is there a <= for a < in the mask?";
  if (p.causal && solve([&](int i, int j) { return j < i + own; }))
    return right + " right for queries that see one key fewer: is there a < for a <= in the mask?";
  if (p.causal && own != 0 && solve([](int i, int j) { return j <= i; }))
    return right + " right for a mask that begins at the top left: query i sees the keys up to i + Nk - Nq, not up to i";
  if (solve([&](int i, int j) { return p.visible(i, j) && j < p.Nk - 1; }))
    return right + " right without the last key: where does the loop over keys end?";
  if (solve([&](int i, int j) { return p.visible(i, j) && j > 0; }))
    return right + " right without the first key: where does the loop over keys begin?";
  return "";
}

/// The largest visible score of a row, and its key.
struct Largest {
  float score = -infinity;
  int key = -1;    ///< -1: the row sees none
  double sum = 0;  ///< of the exponentials, relative to the largest
};

Largest largest_of(const FullProblem& p, const Inputs& inputs, int b, int h, int i) {
  const std::vector<float> scores = scores_in_fp32(p, inputs, b, h, i);
  Largest found;
  for (int j = p.first_key(i); j < p.end_key(i); ++j) {
    if (scores[static_cast<std::size_t>(j)] > found.score) found = {scores[static_cast<std::size_t>(j)], j, 0};
  }
  for (int j = p.first_key(i); found.key >= 0 && j < p.end_key(i); ++j)
    found.sum += std::exp(static_cast<double>(scores[static_cast<std::size_t>(j)]) - found.score);
  return found;
}

/// Infinite or NaN if fp32 cannot hold it. Absent if the row sees no key.
std::optional<float> largest_score_of(const FullProblem& p, const Inputs& inputs, const Worst& at) {
  const std::vector<float> scores = scores_in_fp32(p, inputs, at.b, at.h, at.row);
  std::optional<float> largest;
  for (int j = p.first_key(at.row); j < p.end_key(at.row); ++j) {
    const bool from_tensor = p.bias == BiasKind::vector || p.bias == BiasKind::matrix;
    if (from_tensor && inputs.bias(at.b, at.h, at.row, j) == -infinity) continue;  // masked
    const float score = scores[static_cast<std::size_t>(j)];
    if (std::isnan(score)) return score;
    largest = std::max(largest.value_or(-infinity), score);
  }
  return largest;
}

}  // namespace

std::string solved_instead(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const Sample& sample) {
  if (std::string words = without_an_option(p, inputs, got, sample); !words.empty()) return words;
  if (!sample.whole || !p.is_plain() || p.bias == BiasKind::alibi) return "";
  return other_keys(p, inputs, got, sample);
}

std::vector<std::string> row_hints(const FullProblem& p, const Inputs& inputs, const Results<float>& got,
                                   const CheckReport& check, const Sample& sample) {
  std::vector<std::string> hints;
  if (!sample.whole || !p.is_plain()) return hints;
  for (const TensorCheck& tensor : check.tensors) {
    if (tensor.passed || (tensor.tensor != "o" && tensor.tensor != "lse")) continue;
    const std::set<std::array<int, 3>> wrong(tensor.wrong_rows.begin(), tensor.wrong_rows.end());
    // Over the right and the wrong rows that see a key.
    int right_rows = 0, wrong_rows = 0, last_right_key = -1, first_wrong_key = p.Nk;
    float lowest_right = infinity, highest_wrong = -infinity;
    std::optional<double> unseen;  // how many keys of score 0 the wrong L has too many, if all rows agree
    bool agree = true;
    for (int b = 0; b < p.B; ++b) {
      for (int h = 0; h < p.H; ++h) {
        for (int i = 0; i < p.Nq; ++i) {
          const Largest largest = largest_of(p, inputs, b, h, i);
          if (largest.key < 0) continue;
          if (!wrong.contains({b, h, i})) {
            ++right_rows;
            last_right_key = std::max(last_right_key, largest.key);
            lowest_right = std::min(lowest_right, largest.score);
            continue;
          }
          ++wrong_rows;
          first_wrong_key = std::min(first_wrong_key, largest.key);
          highest_wrong = std::max(highest_wrong, largest.score);
          const double too_many =
              std::exp(static_cast<double>(got.L(b, h, i, 0))) - largest.sum * std::exp(static_cast<double>(largest.score));
          if (!unseen) unseen = std::round(too_many);
          agree = agree && std::abs(too_many - *unseen) < 0.01;
        }
      }
    }
    if (wrong_rows == 0) continue;
    if (right_rows > 0 && last_right_key < first_wrong_key)
      hints.push_back(
          "the rows of " + tensor.tensor + " whose largest score is at a key up to " + std::to_string(last_right_key) +
          " are right, all others are wrong: what depends on where the largest score is? A sum that has to be rescaled?");
    const bool low = right_rows > 0 ? highest_wrong < 0 && lowest_right >= 0 : highest_wrong < -20;
    if (low) hints.push_back("all scores of the wrong rows are below 0: does the maximum start at -infinity?");
    constexpr double largest_tile = 1024;  // more keys than that no kernel pads; and any huge number looks whole
    if (tensor.tensor == "lse" && agree && *unseen >= 1 && *unseen <= largest_tile)
      hints.push_back("lse is right for " + std::to_string(static_cast<int>(*unseen)) +
                      " more keys with score 0: keys past the end of K, which a mask should hide?");
    if (std::isnan(tensor.worst.got))
      hints.push_back(
          "NaN: 0 / 0, inf - inf, or a local variable that no one has written, which holds NaN here and anything on a GPU");
    if (!hints.empty()) break;
  }
  return hints;
}

std::optional<float> explaining_score(const Variant& variant, const FullProblem& p, const Inputs& inputs,
                                      const CheckReport& check) {
  for (const TensorCheck& tensor : check.tensors) {
    if (tensor.passed || (tensor.tensor != "o" && tensor.tensor != "lse")) continue;
    const std::optional<float> largest = largest_score_of(p, inputs, tensor.worst);
    if (!largest) continue;
    if (!std::isfinite(*largest)) return largest;
    if (variant.subtracts_max) continue;
    const bool overflows = tensor.non_finite > 0 && *largest > exp_overflows_beyond;
    if (overflows || *largest < exp_underflows_below) return largest;
  }
  return std::nullopt;
}

std::string only_empty_rows_wrong(const FullProblem& p, const CheckReport& check) {
  const auto sees_none = [&](const std::array<int, 3>& place) { return p.end_key(place[2]) == p.first_key(place[2]); };
  const auto explained = [&](const TensorCheck& t) {
    const bool of_queries = t.tensor == "o" || t.tensor == "lse" || t.tensor == "dq";
    return t.passed || (of_queries && std::ranges::all_of(t.wrong_rows, sees_none));
  };
  if (check.passed || !std::ranges::all_of(check.tensors, explained)) return "";
  return "only rows that see no key are wrong: they must give O = 0 and L = -inf, and dQ = 0";
}

}  // namespace flash
