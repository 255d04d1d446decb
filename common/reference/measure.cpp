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

/// The terms of a block of rows: of its queries (all keys in the columns), and what the block adds to those of its keys.
struct RowTerms {
  Vector dP, P2, dS2, D;
};
RowTerms query_terms(const FullProblem& problem, const Matrix& P, const exact::ScoreGradient& gradient, const Vector& D_errors,
                     const Matrix& K) {
  // dQ_i = scale sum_j P_ij (dP_ij - D_i) k_j: an error of D_i comes with the mean of the keys, which is small unless they are alike.
  const double scale = std::abs(static_cast<double>(problem.scale));
  // A distance changes by at most as much as a point moves: its gradient is no longer than 1.
  const Vector mean_key =
      problem.score == Score::lorentz ? Vector(Vector::Ones(P.rows())) : Vector(product(P, K).cwiseAbs().rowwise().maxCoeff());
  return {gradient.dP_terms.rowwise().sum(), P.rowwise().squaredNorm(), gradient.dS.rowwise().squaredNorm(),
          scale * mean_key.cwiseProduct(D_errors)};
}

RowTerms key_terms(const FullProblem& problem, const Matrix& P, const Matrix& Z, const exact::ScoreGradient& gradient,
                   const Vector& D_errors, const Matrix& Q) {
  // dK_j = scale sum_i P_ij (dP_ij - D_i) q_i
  const double scale = std::abs(static_cast<double>(problem.scale));
  const Vector lengths =
      problem.score == Score::lorentz ? Vector(Vector::Ones(Q.rows())) : Vector(Q.cwiseAbs().rowwise().maxCoeff());
  return {gradient.dP_terms.colwise().sum(), exact::dropped(P, Z).colwise().squaredNorm(), gradient.dS.colwise().squaredNorm(),
          scale * P.transpose() * lengths.cwiseProduct(D_errors)};
}

Matrix take_columns(const Matrix& matrix, const std::vector<int>& columns) {
  return matrix.size() == 0 ? Matrix() : Matrix(matrix(Eigen::all, columns));
}

/// The part of add_head() that a block of queries makes.
template <class T>
void add_block(const exact::Head<T>& head, Pass pass, const Sample::Slice& slice, const std::vector<int>& block,
               std::int64_t first, Exact& exact, Exact& sums, Stored* stored) {
  const FullProblem& p = head.problem;
  const double scale = p.scale;
  const exact::Forward forward = exact::forward(head, block);
  const auto& [P, slope, Z, O, L, score_terms, P_squares, sum_errors] = forward;
  for (std::size_t r = 0; stored != nullptr && r < block.size(); ++r) {
    const auto row = static_cast<Eigen::Index>(r);
    for (int c = 0; c < p.d; ++c) stored->O(0, 0, block[r], c) = round_to(p.dtype, static_cast<float>(O(row, c)));
    stored->L(0, 0, block[r], 0) = static_cast<float>(L(row));
  }

  std::vector<int> chosen;  // rows of the block; in the results they follow each other
  const auto begin = std::lower_bound(slice.queries.begin(), slice.queries.end(), block.front());
  for (auto i = begin; i != slice.queries.end() && *i <= block.back(); ++i) {
    chosen.push_back(static_cast<int>(std::lower_bound(block.begin(), block.end(), *i) - block.begin()));
  }
  const auto put = [&, at = first + (begin - slice.queries.begin())](HostTensor<double>& tensor, const Matrix& rows) {
    rows_of(tensor, at, rows.rows()) = rows;
  };
  put(exact.results.O, exact::take_rows(O, chosen));
  put(exact.results.L, exact::take_rows(L, chosen));
  put(exact.queries.score, exact::take_rows(score_terms, chosen));
  put(exact.queries.P2, exact::take_rows(P_squares, chosen));
  put(exact.queries.sum, exact::take_rows(sum_errors, chosen));
  if (pass == Pass::forward) return;

  // From here on each line differentiates a line of the forward pass.
  const Matrix Q = exact::take_rows(head.Q, block), dO = exact::take_rows(head.dO, block);
  const Vector D_errors = exact::D_errors(p, dO, forward);
  exact::ScoreGradient gradient;
  if (!chosen.empty()) {
    const Matrix P_rows = exact::take_rows(P, chosen);  // P = softmax(S), O = (P o Z) V
    gradient =
        exact::score_gradient(P_rows, exact::take_rows(slope, chosen), exact::take_rows(Z, chosen),
                              exact::output_gradient(p, exact::take_rows(dO, chosen), exact::take_rows(O, chosen)), head.V);
    put(exact.results.dQ, p.score == Score::lorentz  // S = -scale * d(Q, K), or scale * Q K^T
                              ? Matrix(-scale * exact::distance_gradient(gradient.dS, exact::take_rows(Q, chosen), head.K))
                              : Matrix(scale * product(gradient.dS, head.K)));
    const RowTerms terms = query_terms(p, P_rows, gradient, exact::take_rows(D_errors, chosen), head.K);
    put(exact.queries.dP, terms.dP);
    put(exact.queries.dS2, terms.dS2);
    put(exact.queries.D, terms.D);
  }
  if (slice.keys.empty()) return;
  const Matrix P_columns = take_columns(P, slice.keys), Z_columns = take_columns(Z, slice.keys);
  const exact::OutputGradient output = exact::output_gradient(p, dO, O);
  const Matrix V_columns = exact::take_rows(head.V, slice.keys);
  if (chosen.size() < block.size() || slice.keys.size() < static_cast<std::size_t>(p.Nk)) {  // else it is the same
    gradient = exact::score_gradient(P_columns, take_columns(slope, slice.keys), Z_columns, output, V_columns);
  }
  const Matrix dV = product(exact::dropped(P_columns, Z_columns).transpose(), output.dO);  // O = (P o Z) V
  rows_of(sums.results.dV) += p.values == Values::centroid ? exact::without_times(dV, V_columns) : dV;
  rows_of(sums.results.dK) +=
      p.score == Score::lorentz
          ? Matrix(-scale * exact::distance_gradient(gradient.dS.transpose(), exact::take_rows(head.K, slice.keys), Q))
          : Matrix(scale * product(gradient.dS.transpose(), Q));
  auto score = rows_of(sums.keys.score), sum = rows_of(sums.keys.sum);
  score = score.cwiseMax(key_score_terms(P_columns, score_terms));
  sum = sum.cwiseMax(sum_errors.maxCoeff());
  const RowTerms terms = key_terms(p, P_columns, Z_columns, gradient, D_errors, Q);
  rows_of(sums.keys.dP) += terms.dP;
  rows_of(sums.keys.P2) += terms.P2;
  rows_of(sums.keys.dS2) += terms.dS2;
  rows_of(sums.keys.D) += terms.D;
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
void add_head(const exact::Head<T>& head, Pass pass, const Sample::Slice& slice, std::size_t strands, std::int64_t query,
              std::int64_t key, Exact& exact, Stored* stored) {
  const FullProblem& p = head.problem;
  const auto keys = static_cast<std::int64_t>(slice.keys.size());
  const auto blocks = exact::query_blocks(p, keys == 0 ? slice.queries : naive::all_rows(p.Nq));
  std::vector<Exact> sums(std::min(strands, blocks.size()), Exact(pass, p.d, {1, 1, 0}, {1, 1, keys}));
  parallel_for(static_cast<std::int64_t>(sums.size()), [&](std::int64_t s) {
    for (auto n = static_cast<std::size_t>(s); n < blocks.size(); n += sums.size()) {
      add_block(head, pass, slice, blocks[n], query, exact, sums[static_cast<std::size_t>(s)], stored);
    }
  });
  for (Exact& sum : sums) {
    if (keys > 0) add_keys(sum, key, exact);
  }
}

template <class T>
Exact exact_results(const FullProblem& p, const InputsOf<T>& inputs, Pass pass) {
  Exact whole(pass, p.d, {p.B, p.H, p.Nq}, {p.B, p.Hkv, p.Nk});
  // One task per key/value head: the query heads that add to the same dK and dV follow each other in one thread.
  parallel_for(p.B, p.Hkv, [&](int b, int g) {
    Sample::Slice slice{b, 0, naive::all_rows(p.Nq), {}};
    if (pass == Pass::backward) slice.keys = naive::all_rows(p.Nk);
    const std::int64_t key = (std::int64_t{b} * p.Hkv + g) * p.Nk;
    for (slice.h = g * p.group_size(); slice.h < (g + 1) * p.group_size(); ++slice.h) {
      const std::int64_t query = (std::int64_t{b} * p.H + slice.h) * p.Nq;
      add_head(exact::Head<T>(p, inputs, b, slice.h), pass, slice, 1, query, key, whole);
    }
  });
  if (const auto rows = bias_rows(p, pass); !rows.empty()) exact_bias_gradient(p, inputs, rows, bias_shape(p), whole);
  return whole;
}

template Exact exact_results(const FullProblem&, const InputsOf<float>&, Pass);
template Exact exact_results(const FullProblem&, const InputsOf<double>&, Pass);
template void add_head(const exact::Head<float>&, Pass, const Sample::Slice&, std::size_t, std::int64_t, std::int64_t, Exact&,
                       Stored*);

}  // namespace flash
