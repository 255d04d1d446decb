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

/// The largest sums of absolute terms that occurred, bounded by |x . y| <= |x| |y|. Rounding errors are in proportion to these
/// and not to the results, in which terms may cancel.
struct Terms {
  double score = 0;  ///< of a score with weight in its softmax: scale |q_i| |k_j|, and |L_i| for the bias
  double dS = 0;     ///< of P_ij (dP_ij - D_i)
  void include(const Terms& other);
};

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
};
template <class T>
Forward forward(const Head<T>&, const std::vector<int>& queries, Terms&);

/// dS = P o (dP - D) with dP = dO V^T and D = rowsum(dO o O): [rows, keys], where V and the columns of P may be all keys or some.
Matrix score_gradient(const Matrix& P, const Matrix& dO, const Matrix& O, const Matrix& V, Terms&);

/// The chosen rows of a matrix, in that order; the chosen columns.
Matrix take_rows(const Matrix&, const std::vector<int>& rows);
Matrix take_columns(const Matrix&, const std::vector<int>& columns);

/// Blocks of consecutive queries, small enough that a few matrices [rows, Nk] take some ten megabytes.
std::vector<std::vector<int>> query_blocks(const Problem&);

}  // namespace flash::exact
