// The exact results of a problem beside those of the naive implementation, whole or on a sample. Internal to common/reference.
#pragma once

#include "common/reference/exact.hpp"
#include "common/reference/reference.hpp"

#include <array>

namespace flash {

using RowShape = std::array<std::int64_t, 3>;  ///< [batch, heads, rows]

/// What a pass computes for such rows of queries and of keys, all zeros; the gradient of the bias has a shape of its own.
template <class T>
Results<T> zero_results(Pass pass, int d, const RowShape& queries, const RowShape& keys) {
  const auto zeros = [](const RowShape& rows, int cols) { return HostTensor<T>({rows[0], rows[1], rows[2], cols}); };
  Results<T> results;
  results.O = zeros(queries, d), results.L = zeros(queries, 1);
  if (pass == Pass::backward) results.dQ = results.O, results.dK = results.dV = zeros(keys, d);
  return results;
}

struct Exact {
  Exact(Pass, int d, const RowShape& queries, const RowShape& keys);

  Results<double> results;
  exact::Terms queries;  ///< for the rows of O, L and dQ
  exact::Terms keys;     ///< for the rows of dK and dV
  struct {
    HostTensor<double> score;  ///< the largest of the heads that share the bias
    HostTensor<double> own;    ///< by how much roundings of single terms may change the row
  } biases;                    ///< for the rows of dBias; empty unless the problem asks for it
};

/// O and L of all queries of a head, as a forward pass stores them: [1, 1, Nq, d or 1].
struct Stored {
  HostTensor<float> O, L;
};

/// Some queries and keys of a head, and the rows from which on their results lie.
struct HeadRows {
  const Sample::Slice& slice;
  std::int64_t first_query, first_key;
};

/// Puts the rows of the queries into `exact`, and adds what all queries of the head contribute to the keys, none in a forward pass. O and L
/// of all queries go to `stored`, unless that is null. The blocks s, s + strands, s + 2 strands, ... of queries make one sum, and the
/// sums are added in order: the result does not depend on the number of cores.
template <class T>
void add_head(const exact::Head<T>&, const HeadRows&, std::size_t strands, Exact& exact, Stored* stored = nullptr);

/// Results in double precision (Eigen), threaded over (batch, key/value head), with the largest terms that occurred in each row.
/// A query without visible keys gets O = 0, L = -inf and zero gradients. T is float, or double for finite differences.
template <class T>
Exact exact_results(const FullProblem&, const InputsOf<T>&, Pass);

// The gradient of the bias (bias_gradient.cpp). An element of the bias is added to the score of one pair (query, key) in each head that shares
// it: its gradient is the sum of theirs, P o (dP - D), over these heads. Few problems ask for it, so it is computed by itself, and runs the
// forward pass again.

/// Some rows of one matrix of the bias: of batch b and head h, of which one may stand for all.
struct BiasRows {
  int b, h;
  std::vector<int> queries;
};

/// All rows, in the order of a tensor in the bias's shape, or those of a sample's slices. None unless the problem asks for the gradient.
std::vector<BiasRows> bias_rows(const FullProblem&, Pass, const Sample& = {});

/// Fills dBias and its terms in `exact`: in the bias's shape, or of a sample [1, 1, rows, Nk].
template <class T>
void exact_bias_gradient(const FullProblem&, const InputsOf<T>&, const std::vector<BiasRows>&, const Extents& shape,
                         Exact& exact);

/// The same in fp32, summed head by head.
HostTensor<float> naive_bias_gradient(const FullProblem&, const Inputs&, const std::vector<BiasRows>&, const Extents& shape);

struct Measured {
  Exact exact;
  Results<float> naive;
};

/// Both for the rows of a sample that is not whole, in tensors [1, 1, rows, d or 1] with the rows slice by slice.
///
/// Key gradients of the naive implementation start from the exact O and L, rounded to the types that store them: its own would
/// take a second pass over all pairs (query, key). This makes its error, and so the tolerance, a little smaller.
Measured measure_sample(const FullProblem&, const Inputs&, Pass, Sample);

}  // namespace flash
