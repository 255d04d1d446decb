// Inputs made from a seed: random ones, and simple ones that make a wrong index visible at a glance.
#pragma once

#include "common/attention/tensor_table.hpp"

namespace flash {

/// One input tensor of the problem's input kind and seed, rounded to its dtype: the same values at any layout and device. Each tensor has a random
/// stream of its own, so that one does not depend on another's size.
/// dO is standard normal for every kind: with a dO of ones all columns of dV are alike, and with a V of ones too dS = 0, so that
/// wrong gradients would go unseen.
/// bias is standard normal, or the ALiBi slopes 2^(-8(h+1)/H).
HostTensor<float> make_input(const FullProblem&, const ProblemTensor&);

/// All inputs that the pass needs.
Inputs make_inputs(const FullProblem&, Pass);

}  // namespace flash
