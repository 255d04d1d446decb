// Short forms for the tests of several stages.
#pragma once

#include "common/attention/problem.hpp"
#include "common/machine/cpu/options.hpp"

namespace flash::grid {

using simt::Simulated;

inline FullProblem causal(FullProblem p) {
  p.causal = true;
  return p;
}

inline FullProblem with_bias(FullProblem p, BiasKind kind) {
  p.bias = kind;
  return p;
}

inline FullProblem scaled(FullProblem p, float scale) {
  p.scale = scale;
  return p;
}

}  // namespace flash::grid
