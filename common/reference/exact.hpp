// Attention of one head in double precision, written like the math. Internal to common/reference.
//
// Softmax works on each row of S alone, so any block of queries can be computed by itself, against all keys. That keeps the
// memory small, and it is what lets a big problem be checked on a few rows. Only dK and dV sum over all queries.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/attention/problem.hpp"

#include <Eigen/Core>

#include <vector>

namespace flash::exact {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using RowVector = Eigen::RowVectorXd;

/// The largest sums of absolute terms that each row of a result depends on, bounded by |x . y| <= |x| |y|: [B, H, rows, 1].
/// Rounding errors are in proportion to these and not to the results, in which terms may cancel.
struct Terms {
  HostTensor<double> score;  ///< of a score with weight in its softmax: scale |q_i| |k_j|, and |L_i| for the bias
  HostTensor<double> dS;     ///< of P_ij (dP_ij - D_i)
};

/// In fp32 a score of this size is off by 8, about e^8 in its weight: softmax knows nothing any more, and no larger score makes
/// that worse.
constexpr double hopeless_score = 1 << 27;

/// One batch and query head with the key/value head that it reads. Refers to `inputs`, which must outlive it.
template <class T>
struct Head {
  Head(const Problem&, const InputsOf<T>&, int b, int h);

  /// What is added to the scaled scores of query i: [1, Nk].
  RowVector bias_row(int i) const;

  const Problem& problem;
  const InputsOf<T>& inputs;
  int b, h;
  Matrix Q, dO;      // [Nq, d]; dO is empty in a forward pass
  Matrix K, V;       // [Nk, d]
  double longest_k;  // max_j |k_j|
};

/// The forward pass of some queries: one row for each of them.
struct Forward {
  Matrix P;  // [rows, Nk]
  Matrix O;  // [rows, d]
  Vector L;  // [rows]

  Vector score_terms;  // [rows]: Terms::score of each query, 0 if it sees no key
};
template <class T>
Forward forward(const Head<T>&, const std::vector<int>& queries);

/// Terms::score of each key: a query counts for as much as the weight that it gives the key, max_i P_ij score_i. [1, keys]
RowVector key_score_terms(const Matrix& P, const Vector& query_score_terms);

/// dS = P o (dP - D) with dP = dO V^T and D = rowsum(dO o O): [rows, keys], where V and the columns of P may be all keys or some.
struct ScoreGradient {
  Matrix dS;
  Vector query_terms;   // [rows]: Terms::dS of each query
  RowVector key_terms;  // [1, keys]: and of each key
};
ScoreGradient score_gradient(const Matrix& P, const Matrix& dO, const Matrix& O, const Matrix& V);

/// The chosen rows of a matrix, in that order; the chosen columns.
Matrix take_rows(const Matrix&, const std::vector<int>& rows);
Matrix take_columns(const Matrix&, const std::vector<int>& columns);

/// Blocks of consecutive queries, small enough that a few matrices [rows, Nk] take some ten megabytes.
std::vector<std::vector<int>> query_blocks(const Problem&);

}  // namespace flash::exact
