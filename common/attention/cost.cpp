#include "common/attention/cost.hpp"

#include "common/attention/tensor_table.hpp"

#include <algorithm>

namespace flash {

std::int64_t visible_pairs(const FullProblem& p) {
  std::int64_t pairs = 0;
  for (int i = 0; i < p.Nq; ++i) pairs += p.keys_of(i).count();
  return pairs;
}

namespace {

/// Adds the visits of a problem that is not ragged.
void add_visits(const OptionsProblem& p, const Tiles& t, Visits& sum) {
  sum.query_tiles += (p.Nq + t.Br - 1) / t.Br;
  for (int i = 0; i < p.Nq; i += t.Br) {
    const int rows = std::min(t.Br, p.Nq - i);
    const std::int64_t first = p.first_key(i, t.Bc), end = p.end_key(i + rows - 1);  // of the first row, of the last
    const std::int64_t tiles = std::max<std::int64_t>(0, end - first + t.Bc - 1) / t.Bc;
    const std::int64_t keys = std::min<std::int64_t>(tiles * t.Bc, p.Nk - first);
    sum.tiles += tiles;
    sum.pairs += rows * keys;
    sum.queries += rows * tiles;
    sum.keys += keys;
    sum.seeing += tiles > 0 ? rows : 0;
    sum.seeing_tiles += tiles > 0;
  }
  for (int j = 0; j < p.Nk; j += t.Bc) {
    const int rows = std::min(t.Bc, p.Nk - j);
    const bool seen = p.first_query(j) < p.end_query(j + rows - 1);
    sum.seen += seen ? rows : 0;
    sum.seen_tiles += seen;
  }
  sum.key_tiles += (p.Nk + t.Bc - 1) / t.Bc;
}

}  // namespace

Visits visits(const FullProblem& p, const Tiles& t) {
  Visits sum;
  if (p.sequences.empty()) add_visits(p, t, sum);
  for (int s = 0; s < p.sequences.count(); ++s) add_visits(p.sequence(s), t, sum);
  return sum;
}

std::vector<int> longest_first(const FullProblem& p, Pass pass, const Tiles& t) {
  struct Work {
    std::int64_t rows;  // of the other operand, in whole tiles
    int sequence, first;
  };
  const bool forward = pass == Pass::forward;
  const int step = forward ? t.Br : t.Bc, other = forward ? t.Bc : t.Br;
  std::vector<Work> all;
  for (int s = 0; s < p.sequences.count(); ++s) {
    const OptionsProblem sequence = p.sequence(s);
    const int rows = forward ? sequence.Nq : sequence.Nk;
    for (int first = 0; first < rows; first += step) {
      const int last = std::min(first + step, rows) - 1;
      const int begin = forward ? sequence.first_key(first, other) : sequence.first_query(first, other);
      const int end = forward ? sequence.end_key(last) : sequence.end_query(last);
      all.push_back({std::max(0, end - begin + other - 1) / other, s, first});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Work& a, const Work& b) { return a.rows > b.rows; });
  std::vector<int> pairs;
  for (const Work& work : all) pairs.insert(pairs.end(), {work.sequence, work.first});
  return pairs;
}

int launches_of(const FullProblem& p, int Bc) {
  std::int64_t keys = p.sequences.empty() ? p.Nk : 0;
  for (int s = 0; s < p.sequences.count(); ++s) keys = std::max<std::int64_t>(keys, p.sequence(s).Nk);
  keys = std::min(keys, std::int64_t{p.highest()} - p.lowest() + Bc);  // in whole tiles, those of a query
  return static_cast<int>((keys + Bc - 1) / Bc);
}

SplitVisits split_visits(const Problem& p, const Tiles& t, int step) {
  const int rows = p.group_size() * p.Nq, splits = (p.Nk + t.Bc - 1) / t.Bc;
  SplitVisits sum{.rows = rows, .splits = splits};
  for (int first = 0; first < rows; first += t.Br) {
    const auto query = [&](int row) { return std::min(row, rows - 1) / p.group_size(); };
    const int seen = p.visible_keys(query(first + t.Br - 1));  // the last row sees most
    for (int split = 0; split < splits; ++split) {
      const int begin = split * t.Bc, end = std::min(begin + t.Bc, seen);
      const int steps = end > begin ? (end - begin + step - 1) / step : 0;
      sum.blocks += 1;
      sum.steps += steps;
      sum.keys += std::min(steps * step, p.Nk - begin);
    }
    for (int row = first; row < first + t.Br; ++row) sum.pairs += p.visible_keys(query(row));
  }
  return sum;
}

double flops(const FullProblem& p, Pass pass) {
  // One product over all visible pairs: a multiplication and an addition for each of the d components.
  const double product = 2.0 * p.B * p.H * static_cast<double>(visible_pairs(p)) * p.d;
  const double products = pass == Pass::forward ? 2   // S = Q K^T, O = P V
                                                : 5;  // S again, dP = dO V^T, dV = P^T dO, dQ = dS K, dK = dS^T Q
  return products * product;
}

double compulsory_bytes(const FullProblem& p, Pass pass) {
  double bytes = 0;
  each_tensor(p, pass, [&](const ProblemTensor& tensor) {
    bytes += static_cast<double>(elements_of(tensor.shape(p)) * size_of(tensor.dtype(p)));
  });
  return bytes;
}

}  // namespace flash
