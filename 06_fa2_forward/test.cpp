// What chapter 06 claims. The grid that every stage passes is in common/testing/grid.
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/reference/reference.hpp"
#include "common/simt/options.hpp"
#include "common/testing/grid/problems.hpp"
#include "common/testing/grid/support.hpp"
#include "common/testing/grid/traffic.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace flash {
namespace {

/// Lets the simulator stand for another GPU, or start threads in another order, until the end of a scope.
struct Simulated {
  explicit Simulated(const Options& options) { set_options(options); }
  ~Simulated() { set_options(before); }
  Simulated(const Simulated&) = delete;
  Simulated& operator=(const Simulated&) = delete;
  const Options before = options();
};

Problem causal(Problem p) {
  p.causal = true;
  return p;
}

/// Several tiles along both axes, some of whose queries see no key.
Problem many_tiles() { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 100, .Nk = 61, .d = 40})); }

TEST_CASE("cpu: right with each choice of tiles, around their edges, whatever the GPU") {
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const Problem& p : grid::counted({many_tiles(), grid::problem_of({.Nq = 129, .Nk = 65, .d = 128}),
                                           causal(grid::problem_of({.Nq = 63, .Nk = 129, .d = 111})),
                                           causal(grid::problem_of({.Nq = 256, .Nk = 256, .d = 64}))})) {
      const Inputs inputs = make_inputs(p, InputKind::normal, 61, Pass::forward);
      const Checker checker(p, inputs, Pass::forward, Sample{});
      for (const Variant& v : grid::variants()) {
        if (v.tiles == nullptr) continue;  // nothing to choose: the common grid is enough
        for (const TileChoice& choice : v.tiles(p, Pass::forward, grid::device().limits())) {
          Runner runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles);
          runner.run();
          const std::string failed = grid::failures(checker.check(runner.results()));
          CHECK_MESSAGE(failed.empty(), v.name << " with tiles " << choice.tiles.Br << " x " << choice.tiles.Bc << " on "
                                               << describe(p) << ", sm_" << sm << "\n"
                                               << failed);
        }
      }
    }
  }
}

TEST_CASE("cpu: the order of threads changes no bit, nor do 100 repeats") {
  const Problem p = many_tiles();
  const Inputs inputs = make_inputs(p, InputKind::normal, 62, Pass::forward);
  for (const Variant& v : grid::variants()) {
    const Results<float> first = grid::run(v, p, inputs, Pass::forward);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Simulated order({.order = seed == 0 ? Order::reverse : Order::random, .seed = seed});
      CHECK_MESSAGE(grid::identical(first, grid::run(v, p, inputs, Pass::forward)), v.name << ", seed " << seed);
    }
    Runner runner(grid::device(), v, p, inputs, Pass::forward);
    for (int repeat = 0; repeat < 100; ++repeat) {
      runner.run();
      CHECK_MESSAGE(grid::identical(first, runner.results()), v.name << ", repeat " << repeat);
    }
  }
}

TEST_CASE("cpu: HBM bytes of step 1 are those of the formula (6.6)") {
  const Variant& v = grid::variant_named("loop_order");
  std::vector<Problem> problems{many_tiles(), grid::problem_of({.Nq = 113, .Nk = 203, .d = 64}),
                                causal(grid::problem_of({.B = 2, .H = 4, .Hkv = 2, .Nq = 129, .Nk = 300, .d = 59})),
                                causal(grid::problem_of({.Nq = 217, .Nk = 128, .d = 128}))};
  problems[2].bias = BiasKind::matrix;
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const Problem& p : grid::counted(problems)) {
      const Tiles t = v.tiles(p, Pass::forward, grid::device().limits()).front().tiles;
      std::int64_t rows = 0;  // R: of the K tiles of which a Q tile sees any key, for each Q tile
      for (int i = 0; i < p.Nq; i += t.Br) {
        for (int j = 0; j < p.Nk; j += t.Bc) {
          if (p.visible(std::min(i + t.Br, p.Nq) - 1, j)) rows += std::min(t.Bc, p.Nk - j);
        }
      }
      std::int64_t pairs = 0;
      for (int i = 0; i < p.Nq; ++i) pairs += p.visible_keys(i);
      const std::int64_t heads = p.B * p.H, Nq = p.Nq, d = p.d;
      grid::check_traffic(v, p, Pass::forward,
                          {{"Q", {heads * Nq * d, 0}},
                           {"K", {heads * rows * d, 0}},
                           {"V", {heads * rows * d, 0}},
                           {"O", {0, heads * Nq * d}},
                           {"L", {0, heads * Nq}},
                           {"bias", {p.bias == BiasKind::none ? 0 : heads * pairs, 0}}});
    }
  }
}

}  // namespace
}  // namespace flash
