// What the tests of stage 08 share.
#pragma once

#include "common/harness/runner.hpp"
#include "common/testing/grid/problems.hpp"
#include "common/testing/grid/simulated.hpp"
#include "common/testing/grid/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flash::tensor_test {

/// The steps of the forward pass.
inline std::vector<Variant> forward_steps() {
  std::vector<Variant> steps;
  for (const Variant& v : grid::variants()) {
    if (v.backward == nullptr) steps.push_back(v);
  }
  return steps;
}

/// Does the step look for a maximum only where P would overflow, and visit keys from the last to the first?
inline bool is_lazy(const Variant& v) { return v.name == std::string("lazy_maximum") || v.name == std::string("tuned"); }

/// The tile sizes that a step has for a problem on the simulated GPU.
inline std::vector<TileChoice> choices(const Variant& v, const Problem& p, Pass pass) {
  return v.tiles(p, pass, grid::device().limits());
}

/// "tuned, tiles 128 x 64 on B=1 ...", for messages.
inline std::string what(const Variant& v, const Tiles& t, const Problem& p) {
  return std::string(v.name) + ", tiles " + std::to_string(t.Br) + " x " + std::to_string(t.Bc) + " on " + describe(p);
}

/// Runs a pass with those tiles and reports what is wrong.
inline void check(const Checker& checker, const Variant& v, const Tiles& tiles, const Problem& p, const Inputs& inputs,
                  Pass pass) {
  Runner runner(grid::device(), v, p, inputs, pass, tiles);
  runner.run();
  const std::string failed = grid::failures(checker.check(runner.results()));
  CHECK_MESSAGE(failed.empty(), what(v, tiles, p) << "\n" << failed);
}

/// Several tiles along both axes, the first 39 queries see no key, and two query heads share a key/value head.
inline Problem many_tiles() { return grid::causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 174, .Nk = 135, .d = 40})); }

}  // namespace flash::tensor_test
