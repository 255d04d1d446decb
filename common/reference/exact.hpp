// Attention of one head in double precision, written like the math. Internal to common/reference.
//
// Softmax works on each row of S alone, so any block of queries can be computed by itself, against all keys. That keeps the
// memory small, and it is what lets a big problem be checked on a few rows. Only dK and dV sum over all queries.
#pragma once

#include "common/attention/dropout.hpp"
#include "common/attention/tensor_table.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <vector>

namespace flash::exact {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using RowVector = Eigen::RowVectorXd;

/// A B. A function of its own, since compiling one of Eigen's products takes a second. A transposed operand is copied.
Matrix product(const Eigen::Ref<const Matrix>& A, const Eigen::Ref<const Matrix>& B);

/// Magnitudes to which the rounding errors of each row are in proportion, instead of the result, in which terms may cancel:
/// [B, H, rows, 1]. |x . y| <= |x| |y| bounds a product's terms. Sums run over the keys of a query, or over the queries of a key.
struct Terms {
  HostTensor<double> score;  ///< the largest of a score with weight in its softmax: scale |q_i| |k_j|, and |L_i| for the bias
  HostTensor<double> dP;     ///< sum of P_ij |dO_i| |v_j|
  HostTensor<double> P2;     ///< sum of P_ij^2
  HostTensor<double> dS2;    ///< sum of dS_ij^2
  HostTensor<double> D;      ///< not in proportion, but itself: what the errors of D_i make of the row of dQ or dK
  HostTensor<double> sum;    ///< sum_error() of a query's weights; for a key the largest of all queries
};

/// The loss of a kernel for this dtype in fp32 sums and functions, relative to their terms. 2^-24 is half the distance from 1 to the
/// next number. In 16 bits it is 16 times as much: tensor cores truncate what they add up.
inline double unit_32(Dtype dtype) { return dtype == Dtype::fp32 ? 0x1p-24 : 0x1p-20; }

/// How far a score may be off whose terms have this size. A kernel in 16 bits may take the tanh of a softcap from an instruction that is off
/// by 2^-11, and what it caps is at most c.
inline double score_error(const FullProblem& p, double score) {
  const double tanh_error = p.softcap != 0.0f && p.dtype != Dtype::fp32 ? 0x1p-11 : 0.0;
  return unit_32(p.dtype) * (1 + score) + tanh_error * std::min<double>(p.softcap, score);
}

/// The relative error that the sum of a row's weights may have: twice a random walk of so many roundings; and u alike / 3, where
/// `alike` weights equal the one before. These do not walk at random. In the binade [2^k, 2^(k+1)) a partial sum is a multiple of
/// the spacing 2u 2^k, so that each addition of the same w is off by the same amount, at most u 2^k, and there are 2^k / w of them:
/// u 4^k / w in all. The binades up to n w make 4/3 of the last one's share, and that is at most u n / 3 of the sum. With exp(S - m)
/// = 1 for all keys nothing is lost; with exp(S), as stage 01 has it, that much.
inline double sum_error(int keys, int alike) { return 0x1p-24 * (2 * std::sqrt(keys) + alike / 3.0); }

/// The relative loss of rounding to 16 bits; 0 for fp32.
inline double unit_16(Dtype dtype) { return dtype == Dtype::fp32 ? 0.0 : dtype == Dtype::fp16 ? 0x1p-11 : 0x1p-8; }

/// In fp32 a score of this size is off by 8, about e^8 in its weight: softmax knows nothing any more, and no larger score makes
/// that worse.
constexpr double hopeless_score = 1 << 27;

/// One batch and query head with the key/value head that it reads. Refers to `inputs`, which must outlive it.
template <class T>
struct Head {
  Head(const FullProblem&, const InputsOf<T>&, int b, int h);

  /// The bias of query i, added to its scaled scores: [1, Nk].
  RowVector bias_row(int i) const;

  const FullProblem& problem;
  const InputsOf<T>& inputs;
  int b, h;
  Matrix Q, dO;      // [Nq, d]; dO is empty in a forward pass
  Matrix K, V;       // [Nk, d]; with centroids V has a column more, the time components
  double longest_k;  // max_j |k_j|
};

/// The weights that some queries give to all keys or some: [rows, keys].
struct Weights {
  Matrix P;      // e^(S - L)
  Matrix slope;  // of the softcap, d capped / d s; empty without one
  Matrix Z;      // of dropout, 0 or 1 / (1 - p), by which P is multiplied; empty without one
};

/// The forward pass of some queries: one row for each of them.
struct Forward : Weights {
  Matrix Q, dO, O;  // [rows, d]; dO is empty in a forward pass
  Vector L;         // [rows]

  Vector score_terms;  // [rows]: Terms::score of each query, 0 if it sees no key
  Vector P_squares;    // [rows]: Terms::P2
  Vector sum_errors;   // [rows]: Terms::sum
};
template <class T>
Forward forward(const Head<T>&, const std::vector<int>& queries);

/// The weights that multiply V, P o Z.
Matrix dropped(const Matrix& P, const Matrix& Z);

/// What the backward pass multiplies by V: dO, and D = rowsum(dO o O). With centroids it is the gradient of their sums, with a column more,
/// and D is 0.
struct OutputGradient {
  Matrix dO;
  Vector D;
};
OutputGradient output_gradient(const FullProblem&, const Forward&);

/// dS = P o (dP - D) o slope with dP = Z o dO V^T: [rows, keys], where V has the keys of the weights. An empty slope or Z is 1.
struct ScoreGradient {
  Matrix dS;
  Matrix dP_terms;  // [rows, keys]: P_ij Z_ij |dO_i| |v_j|
};
ScoreGradient score_gradient(const Weights&, const OutputGradient&, const Matrix& V);

/// By how much each D_i = dO_i . O_i may be off: [rows]. O_i is off by as much as its softmax, in all its components alike, since they
/// share one sum of weights; and is rounded to 16 bits, each component by itself.
Vector D_errors(const FullProblem&, const Forward&);

/// The chosen rows of a matrix, in that order; of an empty matrix nothing.
Matrix take_rows(const Matrix&, const std::vector<int>& rows);
Forward take_rows(Forward, const std::vector<int>& rows);

/// Some rows of a tensor as a matrix; they are counted over all its heads.
inline Eigen::Map<Matrix> rows_of(HostTensor<double>& tensor, std::int64_t first, std::int64_t count) {
  const auto index = [](std::int64_t n) { return static_cast<Eigen::Index>(n); };  // which may have 32 bits
  return {tensor.values.data() + first * tensor.shape[3], index(count), index(tensor.shape[3])};
}

/// Some queries in blocks, in their order, small enough that a few matrices [rows, Nk] take some ten megabytes.
std::vector<std::vector<int>> query_blocks(const FullProblem&, const std::vector<int>& queries);

}  // namespace flash::exact
