// What the tests of stage 08 share.
#pragma once

#include "08_tensor_cores/predicted.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/runner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace flash::tensor_test {

/// The steps that copy by the TMA; all but the first of them multiply by wgmma.
inline bool is_for_hopper(const Variant& v) { return std::string(v.file).find("/hopper_") != std::string::npos; }

/// The steps of the forward pass that run on the simulated GPU.
inline std::vector<Variant> forward_steps() {
  std::vector<Variant> steps;
  for (const Variant& v : grid::variants()) {
    if (v.backward == nullptr && (!is_for_hopper(v) || grid::device().limits().sm == 90)) steps.push_back(v);
  }
  return steps;
}

/// The backward steps, for Hopper or for any GPU, but for those that only a problem of their own takes.
inline std::vector<Variant> backward_steps(bool for_hopper) {
  std::vector<Variant> steps = grid::variants();
  std::erase_if(steps, [&](const Variant& v) {
    return v.backward == nullptr || v.needs != Features::none || is_for_hopper(v) != for_hopper;
  });
  return steps;
}

/// Those that take a problem.
inline std::vector<Variant> forward_steps(const FullProblem& p) {
  std::vector<Variant> steps = forward_steps();
  std::erase_if(steps, [&](const Variant& v) { return !refusal(v, p).empty(); });
  return steps;
}

using tensor_cores::is_from;

/// Does the step look for a maximum only where there is a mask, or P would overflow, and visit keys from the last to the first?
inline bool is_lazy(const Variant& v) { return is_from(v, "forward/10_lazy_maximum"); }
inline bool has_options_on_hopper(const Variant& v) { return is_from(v, "hopper_forward/more/options"); }
/// The same in a warpgroup, where more tiles take the maximum at once.
inline bool is_lazy_in_warps(const Variant& v) { return is_from(v, "hopper_forward/5_lazy") || has_options_on_hopper(v); }
/// Does it depend on the scores which tiles the step computes twice?
inline bool may_repeat(const Variant& v) { return is_lazy(v) || is_lazy_in_warps(v); }

/// Do blocks share the keys of a tile of rows?
inline bool splits_keys(const Variant& v) {
  return is_from(v, "forward/more/decode") || is_from(v, "hopper_forward/more/decode");
}

/// Does a warp load that does not compute?
inline bool is_specialized(const Variant& v) {
  return is_for_hopper(v) && (v.in_more || is_from(v, "hopper_forward/3_specialized"));
}

/// The tile sizes that a step has for a problem on the simulated GPU.
inline std::vector<TileChoice> choices(const Variant& v, const FullProblem& p, Pass pass) {
  return v.tiles(p, pass, grid::device().limits());
}

/// "fitted, tiles 128 x 64 on B=1 ...", for messages.
inline std::string what(const Variant& v, const Tiles& t, const FullProblem& p) {
  return std::string(v.name) + ", tiles " + std::to_string(t.Br) + " x " + std::to_string(t.Bc) + " on " + describe(p);
}

/// Reports what is wrong with the results of a run with those tiles.
inline void check(const Checker& checker, const Variant& v, const Tiles& tiles, const FullProblem& p, const Runner& runner) {
  const std::string failed = grid::failures(checker.check(runner.results()));
  CHECK_MESSAGE(failed.empty(), what(v, tiles, p) << "\n" << failed);
}

/// Runs a pass with those tiles and reports what is wrong.
inline void check(const Checker& checker, const Variant& v, const Tiles& tiles, const FullProblem& p, const Inputs& inputs,
                  Pass pass) {
  Runner runner(grid::device(), v, p, inputs, pass, tiles);
  runner.run();
  check(checker, v, tiles, p, runner);
}

/// Several tiles along both axes, the first 39 queries see no key, and two query heads share a key/value head.
inline FullProblem many_tiles() { return grid::causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 174, .Nk = 135, .d = 40})); }

}  // namespace flash::tensor_test
