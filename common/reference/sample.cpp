// Chooses the rows of a big problem that are checked, and computes their exact and naive values.
#include "common/reference/measure.hpp"
#include "common/reference/naive.hpp"
#include "common/reference/parallel.hpp"

#include <algorithm>
#include <random>
#include <set>

namespace flash {
namespace {

constexpr int most_slices = 4, most_rows = 64;
constexpr std::size_t most_strands = 64;
// Work in multiply-adds of one product; softmax costs about as much as 50 of them for each pair (query, key). Two cores do about
// 3e9 in a second of whole checking, reference and naive implementation together.
constexpr double whole_work = 3e9;
// Checking some keys takes the exact forward pass of all queries: about ten seconds on two cores.
constexpr double key_work = 6e10;
constexpr double whole_elements = 1 << 24;  // of Q and K: results in double and float then stay below a gigabyte

double work_per_head(const FullProblem& p) { return static_cast<double>(p.Nq) * p.Nk * (50.0 + p.d); }

/// Up to `count` of the numbers below `size`, ascending, the first and the last always among them.
std::vector<int> choose_rows(int size, int count, std::mt19937_64& random) {
  if (size <= count) return naive::all_rows(size);
  std::set<int> rows{0, size - 1};
  while (static_cast<int>(rows.size()) < count) rows.insert(static_cast<int>(random() % static_cast<std::uint64_t>(size)));
  return {rows.begin(), rows.end()};
}

/// O, L and dQ of the slice's queries, by the naive implementation, into the rows from `first` on.
void naive_queries(const FullProblem& p, const Inputs& inputs, Pass pass, const Sample::Slice& slice, std::int64_t first,
                   Results<float>& results) {
  const naive::Keys keys(p, inputs, slice.b, p.kv_head(slice.h), naive::all_rows(p.Nk));
  parallel_for(static_cast<std::int64_t>(slice.queries.size()), [&](std::int64_t r) {
    const naive::Query query{p, inputs, keys, slice.b, slice.h, slice.queries[static_cast<std::size_t>(r)]};
    float* O_i = &results.O(0, 0, first + r, 0);
    float& L_i = results.L(0, 0, first + r, 0);
    naive::forward(query, O_i, L_i);
    if (pass == Pass::forward) return;
    naive::query_gradient(query, naive::score_gradients(query, O_i, L_i), &results.dQ(0, 0, first + r, 0));
  });
}

}  // namespace

Sample choose_sample(const FullProblem& p, Pass pass, std::uint64_t seed) {
  const double heads = static_cast<double>(p.B) * p.H;
  const double work = heads * work_per_head(p) * (pass == Pass::forward ? 1 : 3);
  const double elements =
      static_cast<double>(p.B) * p.d * (static_cast<double>(p.H) * p.Nq + static_cast<double>(p.Hkv) * p.Nk);
  if (work <= whole_work && elements <= whole_elements) return {};

  std::mt19937_64 random(seed);
  // The last slice comes first: where offsets are largest, all tensors are checked even if keys are too dear elsewhere.
  std::vector<std::pair<int, int>> places{{p.B - 1, p.H - 1}};
  if (heads > 1) places.emplace_back(0, 0);
  while (places.size() < most_slices && static_cast<double>(places.size()) < heads) {
    const std::pair place{static_cast<int>(random() % static_cast<std::uint64_t>(p.B)),
                          static_cast<int>(random() % static_cast<std::uint64_t>(p.H))};
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }

  const int rows = std::clamp((1 << 20) / p.Nk, 8, most_rows);  // long rows are dear as well
  const double work_per_slice = p.group_size() * work_per_head(p);
  Sample sample{.whole = false, .slices = {}};
  double keys_done = 0;
  for (const auto& [b, h] : places) {
    Sample::Slice slice{b, h, choose_rows(p.Nq, rows, random), {}};
    keys_done += work_per_slice;
    const bool affordable = sample.slices.empty() || keys_done <= key_work;
    if (pass == Pass::backward && affordable) slice.keys = choose_rows(p.Nk, most_rows, random);
    sample.slices.push_back(std::move(slice));
  }
  return sample;
}

Measured measure_sample(const FullProblem& p, const Inputs& inputs, Pass pass, Sample sample) {
  if (pass == Pass::forward) {  // it has no rows of keys
    for (Sample::Slice& slice : sample.slices) slice.keys.clear();
  }
  std::int64_t queries = 0, keys = 0;
  for (const Sample::Slice& slice : sample.slices) {
    queries += static_cast<std::int64_t>(slice.queries.size());
    keys += static_cast<std::int64_t>(slice.keys.size());
  }
  const RowShape query_rows{1, 1, queries}, key_rows{1, 1, keys};
  Measured measured{Exact(pass, p.d, query_rows, key_rows), zero_results<float>(pass, p.d, query_rows, key_rows)};
  Results<float>& naive = measured.naive;
  queries = keys = 0;
  for (const Sample::Slice& slice : sample.slices) {
    naive_queries(p, inputs, pass, slice, queries, naive);
    const naive::Keys naive_keys(p, inputs, slice.b, p.kv_head(slice.h), slice.keys);
    float *const dK = naive.dK.values.data() + keys * p.d, *const dV = naive.dV.values.data() + keys * p.d;
    for (int h = 0; h < p.H; ++h) {  // the heads that share the keys, if there are keys
      if (slice.keys.empty() ? h != slice.h : p.kv_head(h) != p.kv_head(slice.h)) continue;
      const Sample::Slice part{slice.b, h, h == slice.h ? slice.queries : std::vector<int>{}, slice.keys};
      Stored stored{HostTensor<float>({1, 1, p.Nq, p.d}), HostTensor<float>({1, 1, p.Nq, 1})};
      add_head(exact::Head<float>(p, inputs, slice.b, h), {part, queries, keys}, most_strands, measured.exact, &stored);
      if (slice.keys.empty()) continue;
      naive::KeyGradients naive_head(naive_keys);
      for (int i = 0; i < p.Nq; ++i) {
        const naive::Query query{p, inputs, naive_keys, slice.b, h, i};
        naive::add_query(query, naive::score_gradients(query, &stored.O(0, 0, i, 0), stored.L(0, 0, i, 0)), naive_head);
      }
      naive::add_head(naive_head, dK, dV);
    }
    naive::finish_key_gradients(p, naive_keys.K.size(), dK, dV);
    queries += static_cast<std::int64_t>(slice.queries.size());
    keys += static_cast<std::int64_t>(slice.keys.size());
  }
  if (const auto rows = bias_rows(p, pass, sample); !rows.empty()) {
    const Extents shape{1, 1, queries, p.Nk};
    exact_bias_gradient(p, inputs, rows, shape, measured.exact);
    naive.dBias = naive_bias_gradient(p, inputs, rows, shape);
  }
  return measured;
}

}  // namespace flash
