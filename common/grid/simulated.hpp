// What the tests of several stages say of a problem and of the simulator.
#pragma once

#include "common/attention/problem.hpp"
#include "common/simt/options.hpp"

namespace flash::grid {

/// Lets the simulator stand for another GPU, or run threads and blocks in another order, until the end of a scope.
struct Simulated {
  explicit Simulated(const simt::Options& options) { simt::set_options(options); }
  ~Simulated() { simt::set_options(before); }
  Simulated(const Simulated&) = delete;
  Simulated& operator=(const Simulated&) = delete;
  const simt::Options before = simt::options();
};

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
