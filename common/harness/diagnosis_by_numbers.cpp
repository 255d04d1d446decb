// Explains a wrong result by its numbers alone, so on a GPU, too.
#include "common/attention/option_table.hpp"
#include "common/harness/diagnosis.hpp"
#include "common/harness/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace flash {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// ln of the largest fp32 number, and of the smallest normal one, below which exp loses bits and in the end everything.
constexpr float exp_overflows_beyond = 88.72f, exp_underflows_below = -87.34f;

/// "" or which option of the problem the results leave out.
std::string without_an_option(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const Sample& sample) {
  const auto solve = [&](const FullProblem& other) { return Checker(other, inputs, Pass::forward, sample).check(got).passed; };
  const auto scaled = [&](float scale) {
    FullProblem rescaled = p;
    rescaled.scale = scale;
    return p.scale != 1.0f && solve(rescaled);
  };
  if (scaled(1.0f)) return "o and lse are right for scale = 1: the scores are not multiplied by scale";
  if (scaled(p.scale * p.scale)) return "o and lse are right for scale squared: the scores are multiplied by scale twice";
  for (const ProblemOption& option : problem_options()) {
    if (holds<int>(option) || holds<Dtype>(option) || option.traits.named == Named::of_inputs || !is_set(option, p)) continue;
    FullProblem simpler = without_option(option, p);
    if (simpler.score == Score::dot) simpler.values = Values::tangent;
    if (solve(simpler)) return std::string("o and lse are right without ") + option.name + ": it is not applied";
  }
  return "";
}

/// Are O and L right for the problem with another mask in place of its own? `sees(i, j)`: does query i see key j?
template <class Sees>
bool solves_mask(FullProblem p, Inputs inputs, const Results<float>& got, const Sample& sample, Sees&& sees) {
  p.causal = false;
  p.bias = BiasKind::matrix;
  p.bias_per_batch = p.bias_per_head = false;
  inputs.bias = HostTensor<float>({1, 1, p.Nq, p.Nk});
  for (int i = 0; i < p.Nq; ++i) {
    for (int j = 0; j < p.Nk; ++j) inputs.bias(0, 0, i, j) = sees(i, j) ? 0.0f : -infinity;
  }
  return Checker(p, inputs, Pass::forward, sample).check(got).passed;
}

/// "" or which other keys the queries see.
std::string other_keys(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const Sample& sample) {
  const int own = p.Nk - p.Nq;  // of query 0
  const auto solve = [&](auto&& sees) { return solves_mask(p, inputs, got, sample, sees); };
  if (p.causal && solve([&](int i, int j) { return j <= i + own + 1; }))
    return "o and lse are right for queries that see one key more: is there a <= for a < in the mask?";
  if (p.causal && solve([&](int i, int j) { return j < i + own; }))
    return "o and lse are right for queries that see one key fewer: is there a < for a <= in the mask?";
  if (p.causal && own != 0 && solve([](int i, int j) { return j <= i; }))
    return "o and lse are right for a mask that begins at the top left: query i sees the keys up to i + Nk - Nq, not up to i";
  if (solve([&](int i, int j) { return p.keys_of(i).contain(j) && j < p.Nk - 1; }))
    return "o and lse are right without the last key: where does the loop over keys end?";
  if (solve([&](int i, int j) { return p.keys_of(i).contain(j) && j > 0; }))
    return "o and lse are right without the first key: where does the loop over keys begin?";
  return "";
}

/// "" or how many keys of score 0 L has summed up too many, the same in all wrong rows.
std::string padded_keys(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const CheckReport& check) {
  const auto lse = std::ranges::find(check.tensors, "lse", &TensorCheck::tensor);
  if (lse == check.tensors.end() || lse->passed) return "";
  const HostTensor<float> right = naive_same_precision(p, inputs, Pass::forward).L;
  constexpr double largest_tile = 1024;  // more keys than that no kernel pads; and any huge number looks whole
  double padded = 0;
  for (const auto& [b, h, i] : lse->wrong_rows) {
    const double L = got.L(b, h, i, 0), extra_weight = std::exp(L) - std::exp(static_cast<double>(right(b, h, i, 0)));
    if (padded == 0) padded = std::round(extra_weight);
    const bool explains = padded >= 1 && padded <= largest_tile && std::abs(extra_weight - padded) < 0.01;
    if (!explains) return "";
  }
  return "lse is right for " + std::to_string(static_cast<int>(padded)) +
         " more keys with score 0: keys past the end of K, which a mask should hide?";
}

/// Infinite or NaN if fp32 cannot hold it. Absent if the row sees no key.
std::optional<float> largest_score_of(const FullProblem& p, const Inputs& inputs, const Worst& at) {
  const std::vector<float> scores = scores_in_fp32(p, inputs, at.b, at.h, at.row);
  std::optional<float> largest;
  const auto keys = p.keys_of(at.row);
  for (int j = keys.first; j < keys.end; ++j) {
    const bool from_tensor = p.bias == BiasKind::vector || p.bias == BiasKind::matrix;
    if (from_tensor && inputs.bias(at.b, at.h, at.row, j) == -infinity) continue;  // masked
    const float score = scores[static_cast<std::size_t>(j)];
    if (std::isnan(score)) return score;
    largest = std::max(largest.value_or(-infinity), score);
  }
  return largest;
}

}  // namespace

std::string solved_instead(const FullProblem& p, const Inputs& inputs, const Results<float>& got, const CheckReport& check,
                           const Sample& sample) {
  std::string words = without_an_option(p, inputs, got, sample);
  if (words.empty() && sample.whole && p.is_general() && p.bias == BiasKind::none) words = other_keys(p, inputs, got, sample);
  if (words.empty() && sample.whole) words = padded_keys(p, inputs, got, check);
  return words;
}

std::string score_out_of_range(const Variant& variant, const FullProblem& p, const Inputs& inputs, const CheckReport& check) {
  for (const TensorCheck& tensor : check.tensors) {
    if (tensor.passed || (tensor.tensor != "o" && tensor.tensor != "lse")) continue;
    const std::optional<float> largest = largest_score_of(p, inputs, tensor.worst);
    if (!largest) continue;
    if (!std::isfinite(*largest))
      return "The scores of that row overflow fp32 themselves: scale * q.k exceeds 3.4e38. "
             "No variant can mend that; a smaller --scale or smaller inputs can.";
    const bool overflows = tensor.non_finite > 0 && *largest > exp_overflows_beyond;
    if (variant.subtracts_max || !(overflows || *largest < exp_underflows_below)) continue;
    return "The largest score of that row is " + number_text(static_cast<double>(*largest)) +
           ", and this variant does not subtract the row's max: exp " +
           (overflows ? "overflows in fp32 beyond 88.7."
                      : "underflows in fp32 below -87.3 and is 0 below -104, as if the row saw no key.") +
           " 02_safe_softmax shows the cure.";
  }
  return "";
}

std::string only_empty_rows_wrong(const FullProblem& p, const CheckReport& check) {
  const auto sees_none = [&](const std::array<int, 3>& place) { return p.keys_of(place[2]).count() == 0; };
  const auto explained = [&](const TensorCheck& t) {
    const bool of_queries = t.tensor == "o" || t.tensor == "lse" || t.tensor == "dq";
    return t.passed || (of_queries && std::ranges::all_of(t.wrong_rows, sees_none));
  };
  if (check.passed || !std::ranges::all_of(check.tensors, explained)) return "";
  return "only rows that see no key are wrong: they must give O = 0 and L = -inf, and dQ = 0";
}

}  // namespace flash
