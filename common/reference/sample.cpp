// Which rows of a big problem are checked, and their exact and naive values.
#include "common/attention/float16.hpp"
#include "common/base/parallel.hpp"
#include "common/reference/measure.hpp"
#include "common/reference/naive.hpp"

#include <algorithm>
#include <random>
#include <set>

namespace flash {
namespace {

using exact::Matrix;
using exact::RowVector;
using exact::Vector;

constexpr int most_slices = 4, most_rows = 64;
constexpr std::size_t most_strands = 64;
// Work in multiply-adds of one product; softmax costs about as much as 50 of them for each pair (query, key). Two cores do about
// 3e9 in a second of whole checking, reference and naive implementation together.
constexpr double whole_work = 3e9;
// Checking some keys takes the exact forward pass of all queries: about ten seconds on two cores.
constexpr double key_work = 6e10;
constexpr double whole_elements = 1 << 24;  // of Q and K: results in double and float then stay below a gigabyte

double work_per_head(const Problem& p) { return static_cast<double>(p.Nq) * p.Nk * (50.0 + p.d); }

/// Up to `count` of the numbers below `size`, ascending, the first and the last always among them.
std::vector<int> choose_rows(int size, int count, std::mt19937_64& random) {
  if (size <= count) return naive::all_rows(size);
  std::set<int> rows{0, size - 1};
  while (static_cast<int>(rows.size()) < count) rows.insert(static_cast<int>(random() % static_cast<std::uint64_t>(size)));
  return {rows.begin(), rows.end()};
}

/// Appends the matrix [rows, d] to a tensor [1, 1, rows, d].
template <class T>
void append(HostTensor<T>& tensor, const T* values, std::int64_t rows, std::int64_t cols) {
  tensor.shape = {1, 1, tensor.shape[2] + rows, cols};
  tensor.values.insert(tensor.values.end(), values, values + rows * cols);
}

/// O, L and dQ of the slice's queries.
void measure_queries(const Problem& p, const Inputs& inputs, Pass pass, const Sample::Slice& slice, Measured& measured) {
  const int b = slice.b, h = slice.h;
  const std::vector<int>& queries = slice.queries;
  const std::int64_t rows = static_cast<std::int64_t>(queries.size());
  const exact::Head<float> head(p, inputs, b, h);
  Exact& exact = measured.exact;
  const exact::Forward forward = exact::forward(head, queries);
  const auto& [P, O, L, score_terms, P_squares, sum_errors] = forward;
  append(exact.results.O, O.data(), rows, p.d);
  append(exact.results.L, L.data(), rows, 1);
  append(exact.queries.score, score_terms.data(), rows, 1);
  append(exact.queries.P2, P_squares.data(), rows, 1);
  append(exact.queries.sum, sum_errors.data(), rows, 1);
  if (pass == Pass::backward) {
    const Matrix dO = exact::take_rows(head.dO, queries);
    const exact::ScoreGradient gradient = exact::score_gradient(P, dO, O, head.V);
    const Matrix dQ = static_cast<double>(p.scale) * exact::product(gradient.dS, head.K);
    append(exact.results.dQ, dQ.data(), rows, p.d);
    const exact::RowTerms terms = exact::query_terms(p, P, gradient, exact::D_errors(p, dO, forward), head.K);
    append(exact.queries.dP, terms.dP.data(), rows, 1);
    append(exact.queries.dS2, terms.dS2.data(), rows, 1);
    append(exact.queries.D, terms.D.data(), rows, 1);
  }

  const naive::Keys all_keys(p, inputs, b, p.kv_head(h), naive::all_rows(p.Nk));
  HostTensor<float> naive_O({1, 1, rows, p.d}), naive_L({1, 1, rows, 1}), naive_dQ({1, 1, rows, p.d});
  parallel_for(rows, [&](std::int64_t r) {
    const int i = queries[static_cast<std::size_t>(r)];
    float* O_i = &naive_O(0, 0, r, 0);
    float& L_i = naive_L(0, 0, r, 0);
    naive::forward(p, inputs, all_keys, b, h, i, O_i, L_i);
    if (pass == Pass::forward) return;
    const auto gradients = naive::score_gradients(p, inputs, all_keys, b, h, i, O_i, L_i);
    naive::query_gradient(p, all_keys, gradients, &naive_dQ(0, 0, r, 0));
  });
  append(measured.naive.O, naive_O.values.data(), rows, p.d);
  append(measured.naive.L, naive_L.values.data(), rows, 1);
  if (pass == Pass::backward) append(measured.naive.dQ, naive_dQ.values.data(), rows, p.d);
}

void add(const exact::RowTerms& more, exact::RowTerms& sum) {
  sum.dP += more.dP;
  sum.P2 += more.P2;
  sum.dS2 += more.dS2;
  sum.D += more.D;
}

/// dK and dV of the slice's keys: sums over all queries of the heads that share the key/value head.
void measure_keys(const Problem& p, const Inputs& inputs, const Sample::Slice& slice, Measured& measured) {
  const int b = slice.b, g = p.kv_head(slice.h);
  const std::vector<int>& keys = slice.keys;
  const std::int64_t rows = static_cast<std::int64_t>(keys.size());
  const naive::Keys naive_keys(p, inputs, b, g, keys);
  HostTensor<float> naive_dK({1, 1, rows, p.d}), naive_dV({1, 1, rows, p.d});
  Matrix dK = Matrix::Zero(rows, p.d), dV = dK;
  RowVector score_terms = RowVector::Zero(rows);
  double sum_error = 0;
  const exact::RowTerms none{Vector::Zero(rows), Vector::Zero(rows), Vector::Zero(rows), Vector::Zero(rows)};
  exact::RowTerms terms = none;

  const std::vector<std::vector<int>> blocks = exact::query_blocks(p);
  for (int h = g * p.group_size(); h < (g + 1) * p.group_size(); ++h) {
    const exact::Head<float> head(p, inputs, b, h);
    const Matrix V = exact::take_rows(head.V, keys);
    HostTensor<float> stored_O({1, 1, p.Nq, p.d}), stored_L({1, 1, p.Nq, 1});
    // Sums over the blocks s, s + strands, s + 2 strands, ...: always the same sums, however many cores there are.
    struct Strand {
      Matrix dK, dV;
      RowVector score_terms;
      exact::RowTerms terms;
      double sum_error;
    };
    const std::size_t strands = std::min(blocks.size(), most_strands);
    std::vector<Strand> sums(strands, {Matrix::Zero(rows, p.d), Matrix::Zero(rows, p.d), RowVector::Zero(rows), none, 0.0});
    parallel_for(static_cast<std::int64_t>(strands), [&](std::int64_t s) {
      Strand& sum = sums[static_cast<std::size_t>(s)];
      for (std::size_t n = static_cast<std::size_t>(s); n < blocks.size(); n += strands) {
        const std::vector<int>& queries = blocks[n];
        const exact::Forward forward = exact::forward(head, queries);
        const auto& [P_all, O, L, query_score_terms, P_squares, sum_errors] = forward;
        const Matrix P = exact::take_columns(P_all, keys), dO = exact::take_rows(head.dO, queries);
        const Matrix Q = exact::take_rows(head.Q, queries);
        const exact::ScoreGradient gradient = exact::score_gradient(P, dO, O, V);
        sum.score_terms = sum.score_terms.cwiseMax(exact::key_score_terms(P, query_score_terms));
        sum.sum_error = std::max(sum.sum_error, sum_errors.maxCoeff());
        add(exact::key_terms(p, P, gradient, exact::D_errors(p, dO, forward), Q), sum.terms);
        sum.dV += exact::product(P.transpose(), dO);
        sum.dK += static_cast<double>(p.scale) * exact::product(gradient.dS.transpose(), Q);
        for (Eigen::Index r = 0; r < O.rows(); ++r) {
          const int i = queries[static_cast<std::size_t>(r)];
          for (int c = 0; c < p.d; ++c) stored_O(0, 0, i, c) = round_to(p.dtype, static_cast<float>(O(r, c)));
          stored_L(0, 0, i, 0) = static_cast<float>(L(r));
        }
      }
    });
    for (const Strand& sum : sums) {
      dK += sum.dK;
      dV += sum.dV;
      score_terms = score_terms.cwiseMax(sum.score_terms);
      sum_error = std::max(sum_error, sum.sum_error);
      add(sum.terms, terms);
    }
    naive::KeyGradients naive_head(naive_keys);
    for (int i = 0; i < p.Nq; ++i) {
      const auto gradients =
          naive::score_gradients(p, inputs, naive_keys, b, h, i, &stored_O(0, 0, i, 0), stored_L(0, 0, i, 0));
      naive::add_query(p, inputs, gradients, b, h, i, naive_head);
    }
    naive::add_head(naive_head, naive_dK.values.data(), naive_dV.values.data());
  }
  naive::finish_key_gradients(p, naive_dK.values.size(), naive_dK.values.data(), naive_dV.values.data());
  append(measured.exact.results.dK, dK.data(), rows, p.d);
  append(measured.exact.results.dV, dV.data(), rows, p.d);
  append(measured.exact.keys.score, score_terms.data(), rows, 1);
  append(measured.exact.keys.dP, terms.dP.data(), rows, 1);
  append(measured.exact.keys.P2, terms.P2.data(), rows, 1);
  append(measured.exact.keys.dS2, terms.dS2.data(), rows, 1);
  append(measured.exact.keys.D, terms.D.data(), rows, 1);
  append(measured.exact.keys.sum, Vector(Vector::Constant(rows, sum_error)).data(), rows, 1);
  append(measured.naive.dK, naive_dK.values.data(), rows, p.d);
  append(measured.naive.dV, naive_dV.values.data(), rows, p.d);
}

}  // namespace

Sample choose_sample(const Problem& p, Pass pass, std::uint64_t seed) {
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

Measured measure_sample(const Problem& problem, const Inputs& inputs, Pass pass, const Sample& sample) {
  Measured measured;
  for (const Sample::Slice& slice : sample.slices) {
    if (!slice.queries.empty()) measure_queries(problem, inputs, pass, slice, measured);
    if (pass == Pass::backward && !slice.keys.empty()) measure_keys(problem, inputs, slice, measured);
  }
  return measured;
}

}  // namespace flash
