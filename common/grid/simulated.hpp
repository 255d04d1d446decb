// Short forms for the tests of several stages.
#pragma once

#include "common/attention/problem.hpp"
#include "common/simt/options.hpp"

namespace flash::grid {

using simt::Simulated;

inline Problem causal(Problem p) {
  p.causal = true;
  return p;
}

inline Problem with_bias(Problem p, BiasKind kind) {
  p.bias = kind;
  return p;
}

inline Problem scaled(Problem p, float scale) {
  p.scale = scale;
  return p;
}

}  // namespace flash::grid
