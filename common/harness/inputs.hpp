// Inputs made from a seed: random ones, and simple ones that make a wrong index visible at a glance.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/attention/problem.hpp"

#include <cstdint>

namespace flash {

/// normal:   Q, K, V standard normal.
/// ones:     Q, K, V all ones: every row of O is 1, and L is scale*d plus the logarithm of the number of visible keys.
/// identity: row i of Q and of K is the unit vector i mod d, V as in ramp: with a large scale and N <= d, O = V.
/// ramp:     Q and K all ones, V(j, c) = j mod 1024 + c/1000: row i of O is the mean of the visible j, plus c/1000.
/// large:    normal, with scores of standard deviation 100 at the default scale: exp overflows in fp32 unless the max is subtracted.
enum class InputKind { normal, ones, identity, ramp, large };

const char* to_string(InputKind);

/// The tensors that can be made from a seed. Each has a random stream of its own, so that one does not depend on another's size.
enum class InputTensor { q, k, v, dO, bias };

/// One input tensor, rounded to the problem's dtype (bias: fp32). The same seed gives the same values at any layout and device.
/// dO is standard normal for every kind: with a dO of ones all columns of dV are alike, and with a V of ones too dS = 0, so that
/// wrong gradients would go unseen.
/// bias is standard normal, or the ALiBi slopes 2^(-8(h+1)/H); empty for BiasKind::none.
HostTensor<float> make_input(const FullProblem&, InputKind, std::uint64_t seed, InputTensor);

/// All inputs that the pass needs.
Inputs make_inputs(const FullProblem&, InputKind, std::uint64_t seed, Pass);

}  // namespace flash
