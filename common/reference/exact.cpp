#include "common/reference/exact.hpp"

#include "common/reference/lorentz.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace flash::exact {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The matrix [N, d] of one batch and head.
template <class T>
Matrix head_matrix(const HostTensor<T>& tensor, int b, int h) {
  if (tensor.empty()) return {};
  using Source = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const T* first = tensor.values.data() + tensor.index(b, h, 0, 0);
  return Eigen::Map<const Source>(first, tensor.shape[2], tensor.shape[3]).template cast<double>();
}

/// Turns one row of S into the row of P and returns its L:
///
///     m = max_j S_j     P_j = exp(S_j - m) / l     l = sum_j exp(S_j - m)     L = m + log(l) = log(sum_j exp(S_j))
double softmax(Eigen::Ref<RowVector> row) {
  const double m = row.maxCoeff();
  if (m == -infinity) {  // no visible key: the row has no weights, and -inf - (-inf) would be NaN
    row.setZero();
    return -infinity;
  }
  // exp(-700) = 1e-304 is nothing beside exp(0) = 1, the largest term. Left in, it and smaller ones would become denormal
  // products, which cost hundreds of cycles each; and Eigen's exp(-inf) is a denormal number, not 0.
  row.array() -= m;
  row = (row.array() > -700.0).select(row.array().exp(), 0.0);
  const double l = row.sum();
  row /= l;
  return m + std::log(l);
}

/// Caps scores, and returns the slope of each.
RowVector cap(Eigen::Ref<RowVector> scores, double c) {
  const RowVector t = scores.unaryExpr([c](double score) { return std::tanh(score / c); });
  scores = c * t;
  return 1 - t.array().square();
}

/// Z of query i and the keys before `seen`.
template <class T>
RowVector drop_factors(const Head<T>& head, int i, int seen) {
  const FullProblem& p = head.problem;
  const DropMask mask(p.dropout);
  RowVector Z(seen);
  for (int j = 0; j < seen; ++j)
    Z(j) = p.drop_factor(mask, head.b, head.h, i, j) == 0.0f ? 0.0 : 1 / (1.0 - p.dropout.probability);
  return Z;
}

/// Counts the weights of a row of P that equal the one before them, to a float's precision.
int alike(const Eigen::Ref<const RowVector>& P) {
  int count = 0;
  for (Eigen::Index j = 1; j < P.size(); ++j) count += P(j) > 0 && std::abs(P(j) - P(j - 1)) <= 0x1p-24 * P(j) ? 1 : 0;
  return count;
}

}  // namespace

Matrix product(const Eigen::Ref<const Matrix>& A, const Eigen::Ref<const Matrix>& B) { return A * B; }

template <class T>
Head<T>::Head(const FullProblem& p, const InputsOf<T>& in, int batch, int head)
    : problem(p),
      inputs(in),
      b(batch),
      h(head),
      Q(head_matrix(in.Q, b, h)),
      dO(head_matrix(in.dO, b, h)),
      K(head_matrix(in.K, b, p.kv_head(h))),
      V(head_matrix(in.V, b, p.kv_head(h))),
      longest_k(K.rowwise().norm().maxCoeff()) {
  if (p.values == Values::centroid) V = with_times(V);
}

template <class T>
RowVector Head<T>::bias_row(int i) const {
  const int Nk = problem.Nk;
  switch (problem.bias) {
    case BiasKind::none:
      break;
    case BiasKind::vector:
    case BiasKind::matrix: {
      using Source = Eigen::Matrix<T, 1, Eigen::Dynamic>;
      const T* first = inputs.bias.values.data() + inputs.bias.index(b, h, i, 0);
      return Eigen::Map<const Source>(first, Nk).template cast<double>();
    }
    case BiasKind::alibi: {
      // Each head prefers near keys, by its slope. The last query stands at the last key, as for the causal mask.
      const double slope = inputs.bias(b, h, 0, 0);
      RowVector row(Nk);
      const int own = problem.keys_of(i).own;
      for (int j = 0; j < Nk; ++j) row(j) = -slope * std::abs(own - j);
      return row;
    }
  }
  return RowVector::Zero(Nk);
}

template <class T>
Forward forward(const Head<T>& head, const std::vector<int>& queries) {
  const FullProblem& problem = head.problem;
  const double scale = problem.scale;
  Forward result;
  result.Q = take_rows(head.Q, queries);
  result.dO = take_rows(head.dO, queries);

  int seen = 0;  // no query of the block sees a key from here on
  for (const int i : queries) seen = std::max(seen, problem.keys_of(i).end);

  // S = scale * Q K^T, or -scale times the distances, capped, + bias, -inf where the mask hides a key           [rows, d] x [d, Nk]
  Matrix &S = result.P, &Q = result.Q;
  S.resize(Q.rows(), problem.Nk);
  const Matrix seen_keys = head.K.topRows(seen);
  S.leftCols(seen) = problem.score == Score::lorentz ? Matrix(-scale * distances(Q, seen_keys))
                                                     : Matrix(scale * product(Q, seen_keys.transpose()));
  const bool capped = problem.softcap != 0.0f, drops = problem.dropout.probability > 0.0f;
  if (capped) result.slope.setZero(S.rows(), problem.Nk);
  if (drops) result.Z.setZero(S.rows(), problem.Nk);
  result.L.resize(S.rows());
  result.score_terms.setZero(S.rows());
  result.sum_errors.resize(S.rows());
  for (Eigen::Index r = 0; r < S.rows(); ++r) {
    const int i = queries[static_cast<std::size_t>(r)];
    const auto keys = problem.keys_of(i);
    if (capped) result.slope.row(r).head(seen) = cap(S.row(r).head(seen), problem.softcap);
    if (drops) result.Z.row(r).head(seen) = drop_factors(head, i, seen);
    S.row(r).head(keys.first).setConstant(-infinity);
    S.row(r).tail(problem.Nk - keys.end).setConstant(-infinity);
    if (problem.bias != BiasKind::none) S.row(r) += head.bias_row(i);

    // P = softmax(S), row by row, in place
    result.L(r) = softmax(S.row(r));
    result.sum_errors(r) = sum_error(problem.place_of(i).problem.Nk, alike(S.row(r)));
    if (std::isfinite(result.L(r))) {
      // The terms of a distance are those of q0 k0 - q . k, to whose size the rounding of 1 + x is in proportion.
      const double terms = problem.score == Score::lorentz ? std::hypot(1, Q.row(r).norm()) * std::hypot(1, head.longest_k)
                                                           : Q.row(r).norm() * head.longest_k;
      result.score_terms(r) = std::abs(scale) * terms + std::abs(result.L(r));
    }
  }

  const Matrix weights = dropped(result.P, result.Z);
  result.P_squares = weights.rowwise().squaredNorm();

  // O = (P o Z) V                                                                [rows, Nk] x [Nk, d]
  result.O = product(weights.leftCols(seen), head.V.topRows(seen));
  if (problem.values == Values::centroid) {
    const Vector N = lorentz_norms(result.O), times = result.O.col(problem.d);
    result.L.array() += N.array().log();
    result.P = N.cwiseInverse().asDiagonal() * result.P;
    result.P_squares.array() /= N.array().square();
    result.score_terms.array() += (times.array() / N.array()).square();  // what cancels in N^2
    result.O = Matrix(N.cwiseInverse().asDiagonal() * result.O.leftCols(problem.d));
  }
  return result;
}

Matrix dropped(const Matrix& P, const Matrix& Z) { return Z.size() == 0 ? P : Matrix(P.cwiseProduct(Z)); }

OutputGradient output_gradient(const FullProblem& problem, const Forward& forward) {
  const Matrix &dO = forward.dO, &O = forward.O;
  if (problem.values == Values::centroid) return {centroid_gradient(dO, O), Vector::Zero(dO.rows())};
  return {dO, dO.cwiseProduct(O).rowwise().sum()};
}

ScoreGradient score_gradient(const Weights& weights, const OutputGradient& output, const Matrix& V) {
  const auto& [P, slope, Z] = weights;
  const auto& [dO, D] = output;
  // O = (P o Z) V gives dP = Z o dO V^T                                          [rows, d] x [d, keys]
  const Matrix dP = dropped(product(dO, V.transpose()), Z);
  // P = softmax(S) gives dS_ij = P_ij (dP_ij - sum_k P_ik dP_ik), and that sum is D_i = dO_i . O_i, because O_i = sum_k P_ik Z_ik v_k.

  ScoreGradient result;
  result.dP_terms = dropped(P, Z).array() * (dO.rowwise().norm() * V.rowwise().norm().transpose()).array();
  result.dS = P.array() * (dP.array().colwise() - D.array());
  if (slope.size() > 0) result.dS.array() *= slope.array();
  return result;
}

Vector D_errors(const FullProblem& problem, const Forward& forward) {
  const Matrix &dO = forward.dO, &O = forward.O;
  const Vector scores =
      forward.score_terms.unaryExpr([&](double score) { return score_error(problem, std::min(score, hopeless_score)); });
  return (scores + forward.sum_errors).array() * dO.rowwise().norm().array() * O.rowwise().norm().array() +
         unit_16(problem.dtype) * dO.cwiseProduct(O).rowwise().norm().array();
}

Matrix take_rows(const Matrix& matrix, const std::vector<int>& rows) {
  return matrix.size() == 0 ? Matrix() : Matrix(matrix(rows, Eigen::all));
}

Forward take_rows(Forward f, const std::vector<int>& rows) {
  for (Matrix* const each : {&f.P, &f.slope, &f.Z, &f.Q, &f.dO, &f.O}) *each = take_rows(*each, rows);
  for (Vector* const each : {&f.L, &f.score_terms, &f.P_squares, &f.sum_errors}) *each = take_rows(*each, rows);
  return f;
}

std::vector<std::vector<int>> query_blocks(const FullProblem& problem, const std::vector<int>& queries) {
  const std::ptrdiff_t rows = std::clamp((1 << 20) / problem.Nk, 4, 256);
  std::vector<std::vector<int>> blocks;
  for (auto first = queries.begin(); first != queries.end();) {
    const auto last = first + std::min(rows, queries.end() - first);
    blocks.emplace_back(first, last);
    first = last;
  }
  return blocks;
}

template struct Head<float>;
template struct Head<double>;
template Forward forward(const Head<float>&, const std::vector<int>&);
template Forward forward(const Head<double>&, const std::vector<int>&);

}  // namespace flash::exact
