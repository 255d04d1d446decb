// What chapter 06 claims. The grid that every stage passes is in common/grid.
#include "common/grid/prediction.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/simulated.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/reference/reference.hpp"
#include "common/simt/options.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace flash {
namespace {

using grid::causal;
using grid::Simulated;

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
      CHECK_MESSAGE(identical(first, grid::run(v, p, inputs, Pass::forward)), v.name << ", seed " << seed);
    }
    Runner runner(grid::device(), v, p, inputs, Pass::forward);
    for (int repeat = 0; repeat < (grid::sanitized() ? 2 : 100); ++repeat) {
      runner.run();
      CHECK_MESSAGE(identical(first, runner.results()), v.name << ", repeat " << repeat);
    }
  }
}

TEST_CASE("cpu: bytes are those of the formula (6.6), and sectors, barriers and warp operations as predicted") {
  std::vector<Problem> problems{many_tiles(),
                                grid::problem_of({.Nq = 113, .Nk = 203, .d = 64}),
                                causal(grid::problem_of({.B = 2, .H = 4, .Hkv = 2, .Nq = 129, .Nk = 300, .d = 59})),
                                causal(grid::problem_of({.Nq = 217, .Nk = 128, .d = 128})),
                                causal(grid::problem_of({.Nq = 200, .Nk = 200, .d = 96})),
                                grid::problem_of({.Nq = 72, .Nk = 136, .d = 40}),
                                causal(grid::problem_of({.Nq = 136, .Nk = 128, .d = 64})),
                                causal(grid::problem_of({.Nq = 150, .Nk = 170, .d = 32})),
                                causal(grid::problem_of({.Nq = 70, .Nk = 90, .d = 16}))};
  problems[2].bias = BiasKind::matrix;
  problems[7].bias = BiasKind::vector;
  problems[8].bias = BiasKind::alibi;
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const Problem& p : grid::counted(problems)) {
      for (const Variant& v : grid::variants()) grid::check_prediction(v, p, Pass::forward);
    }
  }
}

TEST_CASE("cpu: no access to a tile in shared memory meets a bank twice") {
  std::vector<Problem> problems;
  for (const int d : {32, 64, 96, 128}) problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = d}));
  for (const Problem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, InputKind::normal, 1, Pass::forward);
    for (const Variant& v : grid::variants()) {
      for (const TileChoice& choice : v.tiles(p, Pass::forward, grid::device().limits())) {
        const Counters counters = Runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles).count();
        CHECK_MESSAGE(counters.bank_conflicts == 0,
                      v.name << ", d=" << p.d << ", tiles " << choice.tiles.Br << " x " << choice.tiles.Bc);
      }
    }
  }
}

/// How many blocks there are with tiles of that many rows.
std::int64_t blocks(const Problem& p, const TileChoice& choice) {
  return std::int64_t{(p.Nq + choice.tiles.Br - 1) / choice.tiles.Br} * p.B * p.H;
}

TEST_CASE("chapter: each GPU has tiles for each d, and the largest is the default where it fills the SMs") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (const Variant& v : grid::variants()) {
      for (int d = 1; d <= 128; ++d) {
        // So many heads that every SM has blocks, whatever the tiles: the order in which the kernels are compiled.
        const std::vector<TileChoice> ranked =
            v.tiles(grid::problem_of({.H = 512, .Hkv = 512, .Nq = 128, .d = d}), Pass::forward, limits);
        REQUIRE(!ranked.empty());
        for (const TileChoice& choice : ranked) {
          CHECK(choice.shared_bytes <= limits.shared_bytes);
          CHECK((choice.threads >= 32 && choice.threads <= 256 && choice.threads % 32 == 0));
        }
        for (const int heads : {1, 2, 4, 8, 12, 16, 24, 32, 64, 128}) {
          const Problem p = grid::problem_of({.H = heads, .Hkv = heads, .Nq = 1024, .Nk = 1024, .d = d});
          const std::vector<TileChoice> choices = v.tiles(p, Pass::forward, limits);
          REQUIRE(choices.size() == ranked.size());
          const TileChoice* expected = nullptr;  // the first with a block for each SM, or else the one with most blocks
          for (const TileChoice& choice : ranked) {
            if (expected == nullptr && blocks(p, choice) >= limits.multiprocessors) expected = &choice;
          }
          if (expected == nullptr) {
            expected = &*std::max_element(ranked.begin(), ranked.end(), [&](const TileChoice& a, const TileChoice& b) {
              return blocks(p, a) < blocks(p, b);
            });
          }
          CHECK_MESSAGE(choices.front().tiles == expected->tiles, std::string(v.name)
                                                                      << ", sm_" << sm << ", d=" << d << ", H=" << heads);
        }
      }
    }
  }
}

}  // namespace
}  // namespace flash
