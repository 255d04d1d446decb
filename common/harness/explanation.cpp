#include "common/harness/explanation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace flash {
namespace {

/// Infinite or NaN if fp32 cannot hold it. Absent if the row sees no key.
std::optional<float> largest_score_of(const FullProblem& p, const Inputs& inputs, const Worst& at) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
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

std::string only_empty_rows_wrong(const FullProblem& p, const Inputs& inputs, Pass pass, const Results<float>& got) {
  int empty = 0;
  while (empty < p.Nq && p.end_key(empty) == p.first_key(empty)) ++empty;
  if (empty == 0 || !choose_sample(p, pass, /*seed=*/1).whole) return "";
  Sample others{.whole = false, .slices = {}};
  std::vector<int> queries(static_cast<std::size_t>(p.Nq - empty)),
      keys(pass == Pass::backward ? static_cast<std::size_t>(p.Nk) : 0);
  std::iota(queries.begin(), queries.end(), empty);
  std::iota(keys.begin(), keys.end(), 0);
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) others.slices.push_back({b, h, queries, keys});
  }
  if (!check_results(p, inputs, pass, got, others).passed) return "";
  return "only rows that see no key are wrong, 0 to " + std::to_string(empty - 1) +
         " of each head: they must give O = 0 and L = -inf" + (pass == Pass::backward ? ", and dQ = 0" : "");
}

}  // namespace flash
