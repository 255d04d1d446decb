#include "common/attention/problem.hpp"

#include "common/attention/dropout.hpp"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

/// The sequence of a row; empty sequences have none.
int sequence_of(const std::vector<int>& offsets, int row) {
  return static_cast<int>(std::upper_bound(offsets.begin(), offsets.end(), row) - offsets.begin()) - 1;
}

}  // namespace

OptionsProblem FullProblem::sequence(int s) const {
  OptionsProblem one = *this;
  const auto at = static_cast<std::size_t>(s);
  one.Nq = sequences.queries[at + 1] - sequences.queries[at];
  one.Nk = sequences.keys[at + 1] - sequences.keys[at];
  return one;
}

int FullProblem::of_query(int i) const { return sequence_of(sequences.queries, i); }
int FullProblem::of_key(int j) const { return sequence_of(sequences.keys, j); }

namespace {

/// Where a sequence begins. The one of a batch that is not ragged begins at 0 and is the problem.
struct Begin {
  int query, key;
  OptionsProblem problem;
};

Begin begin_of(const FullProblem& p, int s) {
  const auto at = static_cast<std::size_t>(s);
  return {p.sequences.queries[at], p.sequences.keys[at], p.sequence(s)};
}
Begin of_query(const FullProblem& p, int i) { return p.sequences.empty() ? Begin{0, 0, p} : begin_of(p, p.of_query(i)); }
Begin of_key(const FullProblem& p, int j) { return p.sequences.empty() ? Begin{0, 0, p} : begin_of(p, p.of_key(j)); }

}  // namespace

int FullProblem::own_key(int i) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return key + i - query + one.Nk - one.Nq;
}
float FullProblem::drop_factor(const DropMask& mask, int b, int h, int i, int j) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return mask((sequences.empty() ? b : of_query(i)) * H + h, i - query, j - key);
}
int FullProblem::first_key(int i) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return key + one.first_key(i - query);
}
int FullProblem::end_key(int i) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return key + one.end_key(i - query);
}
int FullProblem::first_query(int j) const {
  const auto [query, key, one] = flash::of_key(*this, j);
  return query + one.first_query(j - key);
}
int FullProblem::end_query(int j) const {
  const auto [query, key, one] = flash::of_key(*this, j);
  return query + one.end_query(j - key);
}

float default_scale(int d) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))); }

}  // namespace flash
