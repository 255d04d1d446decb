#include "common/attention/problem.hpp"

#include "common/attention/dropout.hpp"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

/// Where a row's sequence begins. The one of a batch that is not ragged begins at 0 and is the problem.
struct Begin {
  int sequence, query, key;
  OptionsProblem problem;
};

/// `offsets`: the sequences' queries, or their keys, among which the row is.
Begin begin_of(const FullProblem& p, const std::vector<int>& offsets, int row) {
  if (p.sequences.empty()) return {0, 0, 0, p};
  const auto end = std::upper_bound(offsets.begin(), offsets.end(), row);  // empty sequences have no row
  const std::ptrdiff_t s = end - offsets.begin() - 1;
  const auto at = static_cast<std::size_t>(s);
  return {static_cast<int>(s), p.sequences.queries[at], p.sequences.keys[at], p.sequence(static_cast<int>(s))};
}

}  // namespace

OptionsProblem FullProblem::sequence(int s) const {
  OptionsProblem one = *this;
  const auto at = static_cast<std::size_t>(s);
  one.Nq = sequences.queries[at + 1] - sequences.queries[at];
  one.Nk = sequences.keys[at + 1] - sequences.keys[at];
  return one;
}

int FullProblem::keys_around(int i) const { return begin_of(*this, sequences.queries, i).problem.Nk; }
int FullProblem::own_key(int i) const {
  const auto [s, query, key, one] = begin_of(*this, sequences.queries, i);
  return key + i - query + one.Nk - one.Nq;
}
float FullProblem::drop_factor(const DropMask& mask, int b, int h, int i, int j) const {
  const auto [s, query, key, one] = begin_of(*this, sequences.queries, i);
  return mask((sequences.empty() ? b : s) * H + h, i - query, j - key);
}
int FullProblem::first_key(int i) const {
  const auto [s, query, key, one] = begin_of(*this, sequences.queries, i);
  return key + one.first_key(i - query);
}
int FullProblem::end_key(int i) const {
  const auto [s, query, key, one] = begin_of(*this, sequences.queries, i);
  return key + one.end_key(i - query);
}
int FullProblem::first_query(int j) const {
  const auto [s, query, key, one] = begin_of(*this, sequences.keys, j);
  return query + one.first_query(j - key);
}
int FullProblem::end_query(int j) const {
  const auto [s, query, key, one] = begin_of(*this, sequences.keys, j);
  return query + one.end_query(j - key);
}

float default_scale(int d) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))); }

}  // namespace flash
