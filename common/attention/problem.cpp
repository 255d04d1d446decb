#include "common/attention/problem.hpp"

#include "common/attention/dropout.hpp"

#include <algorithm>
#include <cmath>

namespace flash {

OptionsProblem FullProblem::sequence(int s) const {
  OptionsProblem alone = *this;
  const auto at = static_cast<std::size_t>(s);
  alone.Nq = sequences.queries[at + 1] - sequences.queries[at];
  alone.Nk = sequences.keys[at + 1] - sequences.keys[at];
  return alone;
}

FullProblem::Place FullProblem::place_of(int i) const {
  if (sequences.empty()) return {0, 0, 0, *this};
  const auto& [queries, keys] = sequences;
  const auto end = std::upper_bound(queries.begin(), queries.end(), i);  // empty sequences have no query
  const auto at = static_cast<std::size_t>(end - queries.begin() - 1);
  return {static_cast<int>(at), queries[at], keys[at], sequence(static_cast<int>(at))};
}

FullProblem::Keys FullProblem::keys_of(int i) const {
  const auto [s, query, key, alone] = place_of(i);
  const int row = i - query;
  return {key + alone.first_key(row), key + alone.end_key(row), key + row + alone.Nk - alone.Nq};
}

float FullProblem::drop_factor(const DropMask& mask, int b, int h, int i, int j) const {
  const auto [s, query, key, alone] = place_of(i);
  return mask((sequences.empty() ? b : s) * H + h, i - query, j - key);
}

float default_scale(int d) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))); }

}  // namespace flash
