#include "common/reference/lorentz.hpp"

#include <algorithm>
#include <cmath>

namespace flash::exact {
namespace {

Vector times(const Matrix& M) { return (1 + M.rowwise().squaredNorm().array()).sqrt(); }

struct Pair {
  double x, theta;
};

Pair pair_of(const Matrix& Q, const Matrix& K, const Vector& q0, const Vector& k0, Eigen::Index i, Eigen::Index j) {
  const RowVector apart = Q.row(i) - K.row(j);
  const double theta = apart.dot(Q.row(i) + K.row(j)) / (q0(i) + k0(j));
  return {std::max(0.0, (apart.squaredNorm() - theta * theta) / 2), theta};
}

}  // namespace

Matrix distances(const Matrix& Q, const Matrix& K) {
  const Vector q0 = times(Q), k0 = times(K);
  Matrix d(Q.rows(), K.rows());
  for (Eigen::Index i = 0; i < Q.rows(); ++i) {
    for (Eigen::Index j = 0; j < K.rows(); ++j) d(i, j) = 2 * std::asinh(std::sqrt(pair_of(Q, K, q0, k0, i, j).x / 2));
  }
  return d;
}

Matrix distance_gradient(const Matrix& W, const Matrix& Q, const Matrix& K) {
  const Vector q0 = times(Q), k0 = times(K);
  Matrix gradient = Matrix::Zero(Q.rows(), Q.cols());
  for (Eigen::Index i = 0; i < Q.rows(); ++i) {
    for (Eigen::Index j = 0; j < K.rows(); ++j) {
      const Pair pair = pair_of(Q, K, q0, k0, i, j);
      if (W(i, j) == 0 || pair.x == 0) continue;
      const double slope = W(i, j) / std::sqrt(pair.x * (pair.x + 2));
      gradient.row(i) += slope * (Q.row(i) - K.row(j) - pair.theta / q0(i) * Q.row(i));
    }
  }
  return gradient;
}

Matrix with_times(const Matrix& M) {
  Matrix all(M.rows(), M.cols() + 1);
  all << M, times(M);
  return all;
}

Vector lorentz_norms(const Matrix& sums) {
  Vector norms(sums.rows());
  for (Eigen::Index i = 0; i < sums.rows(); ++i) {
    const double time = sums(i, sums.cols() - 1), length = sums.row(i).head(sums.cols() - 1).norm();
    norms(i) = std::sqrt(std::max(1.0, (time - length) * (time + length)));
  }
  return norms;
}

Matrix centroid_gradient(const Matrix& dO, const Matrix& y) {
  const Vector D = dO.cwiseProduct(y).rowwise().sum();
  Matrix gradient(dO.rows(), dO.cols() + 1);
  gradient << dO + D.asDiagonal() * y, -D.cwiseProduct(times(y));
  return gradient;
}

Matrix without_times(const Matrix& gradient, const Matrix& V) {
  const Eigen::Index d = V.cols() - 1;
  const Vector by_time = gradient.col(d).cwiseQuotient(V.col(d));
  return gradient.leftCols(d) + by_time.asDiagonal() * V.leftCols(d);
}

}  // namespace flash::exact
