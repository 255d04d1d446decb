#include "common/reference/measure.hpp"

#include "common/attention/tensor_table.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/reference/lorentz.hpp"
#include "common/reference/naive.hpp"
#include "common/reference/parallel.hpp"

#include <algorithm>
#include <cmath>

namespace flash {

using exact::Matrix;
using exact::product;
using exact::rows_of;
using exact::take_rows;
using exact::Vector;

namespace {

/// All rows, whose keys are in `part`.
Eigen::Map<Matrix> rows_of(HostTensor<double>& tensor) { return rows_of(tensor, 0, tensor.shape[2]); }

/// Adds the sums over some queries to those in the rows from `first` on.
void add_keys(Exact& part, std::int64_t first, Exact& exact) {
  using exact::Terms;
  for (const auto tensor : {&Results<double>::dK, &Results<double>::dV}) {
    rows_of(exact.results.*tensor, first, (part.results.*tensor).shape[2]) += rows_of(part.results.*tensor);
  }
  for (const auto tensor : {&Terms::dP, &Terms::P2, &Terms::dS2, &Terms::D, &Terms::score, &Terms::sum}) {
    auto all = rows_of(exact.keys.*tensor, first, (part.keys.*tensor).shape[2]);
    const auto more = rows_of(part.keys.*tensor);
    const bool largest = tensor == &Terms::score || tensor == &Terms::sum;
    all = largest ? Matrix(all.cwiseMax(more)) : Matrix(all + more);
  }
}

/// Terms::score of each key: a query counts for as much as the weight that it gives the key, max_i P_ij score_i.
Vector key_score_terms(const Matrix& P, const Vector& query_score_terms) {
  Vector terms = Vector::Zero(P.cols());
  for (Eigen::Index r = 0; r < P.rows(); ++r) {
    terms = terms.cwiseMax(std::min(query_score_terms(r), exact::hopeless_score) * P.row(r).transpose());
  }
  return terms;
}

exact::Weights take_columns(const exact::Weights& weights, const std::vector<int>& columns) {
  const auto take = [&](const Matrix& matrix) { return matrix.size() == 0 ? Matrix() : Matrix(matrix(Eigen::all, columns)); };
  return {take(weights.P), take(weights.slope), take(weights.Z)};
}

void store(const std::vector<int>& queries, const exact::Forward& forward, Dtype dtype, Stored& stored) {
  for (std::size_t r = 0; r < queries.size(); ++r) {
    const auto row = static_cast<Eigen::Index>(r);
    for (Eigen::Index c = 0; c < forward.O.cols(); ++c)
      stored.O(0, 0, queries[r], c) = round_to(dtype, static_cast<float>(forward.O(row, c)));
    stored.L(0, 0, queries[r], 0) = static_cast<float>(forward.L(row));
  }
}

/// Puts the rows of some queries into `exact`, from row `first` on. Returns the gradient of their scores, nothing in a forward pass.
template <class T>
exact::ScoreGradient put_queries(const exact::Head<T>& head, const exact::Forward& forward, std::int64_t first, Exact& exact) {
  const auto put = [&](HostTensor<double>& tensor, const Matrix& rows) { rows_of(tensor, first, rows.rows()) = rows; };
  put(exact.results.O, forward.O);
  put(exact.results.L, forward.L);
  put(exact.queries.score, forward.score_terms);
  put(exact.queries.P2, forward.P_squares);
  put(exact.queries.sum, forward.sum_errors);
  if (exact.results.dQ.empty() || forward.L.size() == 0) return {};

  // From here on each line differentiates a line of the forward pass.
  const FullProblem& p = head.problem;
  const double scale = p.scale;
  const bool lorentz = p.score == Score::lorentz;
  const exact::ScoreGradient gradient =  // P = softmax(S), O = (P o Z) V
      exact::score_gradient(forward, exact::output_gradient(p, forward), head.V);
  put(exact.results.dQ, lorentz  // S = -scale * d(Q, K), or scale * Q K^T
                            ? Matrix(-scale * exact::distance_gradient(gradient.dS, forward.Q, head.K))
                            : Matrix(scale * product(gradient.dS, head.K)));
  put(exact.queries.dP, gradient.dP_terms.rowwise().sum());
  put(exact.queries.dS2, gradient.dS.rowwise().squaredNorm());
  // dQ_i = scale sum_j P_ij (dP_ij - D_i) k_j: an error of D_i comes with the mean of the keys, which is small unless they are alike.
  // A distance changes by at most as much as a point moves: its gradient is no longer than 1.
  const Vector mean_key =
      lorentz ? Vector(Vector::Ones(forward.P.rows())) : Vector(product(forward.P, head.K).cwiseAbs().rowwise().maxCoeff());
  put(exact.queries.D, std::abs(scale) * mean_key.cwiseProduct(exact::D_errors(p, forward)));
  return gradient;
}

/// Adds what some queries contribute to some keys. `known`: the gradient of their scores; null: to be computed.
template <class T>
void add_queries(const exact::Head<T>& head, const exact::Forward& forward, const std::vector<int>& keys,
                 const exact::ScoreGradient* known, Exact& sums) {
  const FullProblem& p = head.problem;
  const double scale = p.scale;
  const bool lorentz = p.score == Score::lorentz;
  const Matrix &Q = forward.Q, V = take_rows(head.V, keys);
  const exact::Weights weights = take_columns(forward, keys);
  const exact::OutputGradient output = exact::output_gradient(p, forward);
  const exact::ScoreGradient gradient = known != nullptr ? *known : exact::score_gradient(weights, output, V);
  const Matrix dropped = exact::dropped(weights.P, weights.Z);
  const Matrix dV = product(dropped.transpose(), output.dO);  // O = (P o Z) V
  rows_of(sums.results.dV) += p.values == Values::centroid ? exact::without_times(dV, V) : dV;
  rows_of(sums.results.dK) +=
      lorentz ? Matrix(-scale * exact::distance_gradient(gradient.dS.transpose(), take_rows(head.K, keys), Q))
              : Matrix(scale * product(gradient.dS.transpose(), Q));
  auto score = rows_of(sums.keys.score), sum = rows_of(sums.keys.sum);
  score = score.cwiseMax(key_score_terms(weights.P, forward.score_terms));
  sum = sum.cwiseMax(forward.sum_errors.maxCoeff());
  rows_of(sums.keys.dP) += gradient.dP_terms.colwise().sum().transpose();
  rows_of(sums.keys.P2) += dropped.colwise().squaredNorm().transpose();
  rows_of(sums.keys.dS2) += gradient.dS.colwise().squaredNorm().transpose();
  // dK_j = scale sum_i P_ij (dP_ij - D_i) q_i
  const Vector lengths = lorentz ? Vector(Vector::Ones(Q.rows())) : Vector(Q.cwiseAbs().rowwise().maxCoeff());
  rows_of(sums.keys.D) += std::abs(scale) * weights.P.transpose() * lengths.cwiseProduct(exact::D_errors(p, forward));
}

/// The part of add_head() that a block of queries makes.
template <class T>
void add_block(const exact::Head<T>& head, const HeadRows& rows, const std::vector<int>& block, Exact& exact, Exact& sums,
               Stored* stored) {
  const exact::Forward forward = exact::forward(head, block);
  if (stored != nullptr) store(block, forward, head.problem.dtype, *stored);
  const auto& [b, h, queries, keys] = rows.slice;
  const auto begin = std::ranges::lower_bound(queries, block.front()), end = std::ranges::upper_bound(queries, block.back());
  std::vector<int> chosen;  // places in the block
  for (auto i = begin; i != end; ++i) chosen.push_back(static_cast<int>(std::ranges::lower_bound(block, *i) - block.begin()));
  const exact::ScoreGradient gradient =
      put_queries(head, take_rows(forward, chosen), rows.first_query + (begin - queries.begin()), exact);
  if (keys.empty()) return;
  const bool same = chosen.size() == block.size() && keys.size() == static_cast<std::size_t>(head.problem.Nk);
  add_queries(head, forward, keys, same ? &gradient : nullptr, sums);
}

}  // namespace

Exact::Exact(Pass pass, int d, const RowShape& query_rows, const RowShape& key_rows)
    : results(zero_results<double>(pass, d, query_rows, key_rows)) {
  queries.score = queries.P2 = queries.sum = results.L;
  if (pass == Pass::forward) return;
  queries.dP = queries.dS2 = queries.D = results.L;
  keys.score = keys.dP = keys.P2 = keys.dS2 = keys.D = keys.sum =
      HostTensor<double>({key_rows[0], key_rows[1], key_rows[2], 1});
}

template <class T>
void add_head(const exact::Head<T>& head, const HeadRows& rows, std::size_t strands, Exact& exact, Stored* stored) {
  const FullProblem& p = head.problem;
  const auto keys = static_cast<std::int64_t>(rows.slice.keys.size());
  const auto blocks = exact::query_blocks(p, keys == 0 ? rows.slice.queries : naive::all_rows(p.Nq));
  std::vector<Exact> sums(std::min(strands, blocks.size()), Exact(Pass::backward, p.d, {1, 1, 0}, {1, 1, keys}));
  parallel_for(static_cast<std::int64_t>(sums.size()), [&](std::int64_t s) {
    for (auto n = static_cast<std::size_t>(s); n < blocks.size(); n += sums.size()) {
      add_block(head, rows, blocks[n], exact, sums[static_cast<std::size_t>(s)], stored);
    }
  });
  for (Exact& sum : sums) {
    if (keys > 0) add_keys(sum, rows.first_key, exact);
  }
}

template <class T>
Exact exact_results(const FullProblem& p, const InputsOf<T>& inputs, Pass pass) {
  Exact whole(pass, p.d, {p.B, p.H, p.Nq}, {p.B, p.Hkv, p.Nk});
  // One task per key/value head: the query heads that add to the same dK and dV follow each other in one thread.
  parallel_for(p.B, p.Hkv, [&](int b, int g) {
    Sample::Slice slice{b, 0, naive::all_rows(p.Nq), naive::all_rows(pass == Pass::backward ? p.Nk : 0)};
    const std::int64_t key = (std::int64_t{b} * p.Hkv + g) * p.Nk;
    for (slice.h = g * p.group_size(); slice.h < (g + 1) * p.group_size(); ++slice.h) {
      const std::int64_t query = (std::int64_t{b} * p.H + slice.h) * p.Nq;
      add_head(exact::Head<T>(p, inputs, b, slice.h), {slice, query, key}, 1, whole);
    }
  });
  if (const auto rows = bias_rows(p, pass); !rows.empty()) exact_bias_gradient(p, inputs, rows, bias_shape(p), whole);
  return whole;
}

template Exact exact_results(const FullProblem&, const InputsOf<float>&, Pass);
template Exact exact_results(const FullProblem&, const InputsOf<double>&, Pass);
template void add_head(const exact::Head<float>&, const HeadRows&, std::size_t, Exact&, Stored*);

}  // namespace flash
