// The gradient of the bias, exact and by plain loops. Internal to common/reference.
//
// An element of the bias is added to the score of one pair (query, key) in each head that shares it: its gradient is the sum of theirs,
// P o (dP - D), over these heads. Few problems ask for it, so it is computed by itself, and runs the forward pass again.
#pragma once

#include "common/reference/measure.hpp"

namespace flash {

/// Some rows of one matrix of the bias: of batch b and head h, of which one may stand for all.
struct BiasRows {
  int b, h;
  std::vector<int> queries;
};

/// All rows, in the order of a tensor in the bias's shape, or those of a sample's slices. None unless the problem asks for the gradient.
std::vector<BiasRows> bias_rows(const FullProblem&, Pass, const Sample& = {});

/// Fills dBias and its terms in `exact`: in the bias's shape, or of a sample [1, 1, rows, Nk].
template <class T>
void exact_bias_gradient(const FullProblem&, const InputsOf<T>&, const std::vector<BiasRows>&,
                         const std::array<std::int64_t, 4>& shape, Exact& exact);

/// The same in fp32, summed head by head.
HostTensor<float> naive_bias_gradient(const FullProblem&, const Inputs&, const std::vector<BiasRows>&,
                                      const std::array<std::int64_t, 4>& shape);

}  // namespace flash
