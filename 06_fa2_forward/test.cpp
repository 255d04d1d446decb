// What chapter 06 claims. The grid that every stage passes is in common/grid.
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/parts/compiled_shapes.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace flash {
namespace {

using grid::causal;
using grid::Simulated;

/// Several tiles along both axes, some of whose queries see no key.
FullProblem many_tiles() { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 100, .Nk = 61, .d = 40})); }

TEST_CASE("cpu: right with each choice of tiles, around their edges, whatever the GPU (long)") {
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const FullProblem& p : grid::counted({many_tiles(), grid::problem_of({.Nq = 129, .Nk = 65, .d = 128}),
                                               causal(grid::problem_of({.Nq = 63, .Nk = 129, .d = 111})),
                                               causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 256, .Nk = 256, .d = 64}))})) {
      const Inputs inputs = make_inputs(p, Pass::forward);
      const Checker checker(p, inputs, Pass::forward, Sample{});
      for (const Variant& v : grid::variants_for(p)) {
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

TEST_CASE("cpu: the order of threads changes no bit") {
  const FullProblem p = many_tiles();
  const Inputs inputs = make_inputs(p, Pass::forward);
  for (const Variant& v : grid::variants_for(p)) {
    const Results<float> first = grid::run(v, p, inputs, Pass::forward);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Simulated order({.order = seed == 0 ? Order::reverse : Order::random, .seed = seed});
      CHECK_MESSAGE(identical(first, grid::run(v, p, inputs, Pass::forward)), v.name << ", seed " << seed);
    }
  }
}

TEST_CASE("cpu: bytes are those of the formula (6.6), and sectors, barriers and warp operations as predicted") {
  // On sm_90 the grid holds every problem to the predictions. On sm_75 tiles are smaller.
  std::vector<FullProblem> problems{many_tiles(),
                                    causal(grid::problem_of({.B = 2, .H = 2, .Hkv = 1, .Nq = 65, .Nk = 180, .d = 59})),
                                    causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 217, .Nk = 128, .d = 128})),
                                    causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 200, .Nk = 200, .d = 96}))};
  problems[1].bias = BiasKind::matrix;
  const Simulated turing({.target_sm = 75});
  for (const FullProblem& p : grid::counted(problems)) {
    for (const Variant& v : grid::variants_for(p)) grid::check_prediction(v, p, Pass::forward);
  }
}

TEST_CASE("cpu: no access to a tile in shared memory meets a bank twice") {
  std::vector<FullProblem> problems;
  for (const int d : {32, 64, 96, 128}) {
    problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = d}));
    problems.push_back(problems.back());
    problems.back().score = Score::lorentz;
    problems.push_back(problems.back());
    problems.back().values = Values::centroid;
  }
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, Pass::forward);
    for (const Variant& v : grid::variants_for(p)) {
      for (const TileChoice& choice : v.tiles(p, Pass::forward, grid::device().limits())) {
        const Counters counters = Runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles).count();
        CHECK_MESSAGE(counters.bank_conflicts == 0,
                      v.name << ", d=" << p.d << ", tiles " << choice.tiles.Br << " x " << choice.tiles.Bc);
      }
    }
  }
}

TEST_CASE("chapter: each GPU has tiles for each d") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (const Variant& v : grid::variants()) {
      for (int d = 1; d <= 128; ++d) {
        INFO(std::string(v.name) << ", sm_" << sm << ", d=" << d);
        const std::vector<TileChoice> all = v.tiles(grid::problem_of({.d = d}), Pass::forward, limits);
        REQUIRE(!all.empty());
        for (const TileChoice& choice : all) {
          CHECK(choice.shared_bytes <= limits.shared_bytes);
          CHECK((choice.threads >= 32 && choice.threads <= 256 && choice.threads % 32 == 0));
        }
      }
    }
  }
}

TEST_CASE("chapter: the default tiles are those that were fastest on an H200") {
  const struct {
    int heads, N, d;
    bool causal;
    Tiles fastest;
  } measured[] = {
      {8, 4096, 64, false, {128, 64}},  {8, 4096, 64, true, {64, 64}},    {8, 2048, 64, false, {64, 64}},
      {64, 1024, 64, true, {128, 64}},  {12, 2048, 64, false, {64, 64}},  {8, 2048, 128, false, {128, 128}},
      {12, 2048, 128, false, {64, 32}}, {8, 4096, 128, true, {128, 128}},
  };
  for (const auto& m : measured) {
    FullProblem p = grid::problem_of({.H = m.heads, .Hkv = m.heads, .Nq = m.N, .Nk = m.N, .d = m.d});
    p.causal = m.causal;
    INFO("H=" << m.heads << " N=" << m.N << " d=" << m.d << std::string(m.causal ? " causal" : ""));
    const Tiles chosen = grid::variant_named("tuned").tiles(p, Pass::forward, grid::device().limits()).front().tiles;
    CHECK_MESSAGE(chosen == m.fastest, chosen.Br << " x " << chosen.Bc);
  }
}

TEST_CASE("parts: the estimated time of a size on four multiprocessors, by hand") {
  const CompiledShape shape{64, {128, 32}, 128, 0, 75, "", nullptr, {}, /*per_sm=*/2, /*speed=*/2};
  const auto time = [&](Pass pass, bool causal, int H, int Hkv, int N) {
    FullProblem p = grid::problem_of({.H = H, .Hkv = Hkv, .Nq = N, .Nk = N, .d = 64});
    p.causal = causal;
    return doctest::Approx(least_time({&shape, 1}, p, pass, {.multiprocessors = 4}));
  };
  CHECK(time(Pass::forward, false, 2, 2, 512) == 128 * (512 + 272));         // 8 blocks, two at a time: a wave at speed 2
  CHECK(time(Pass::forward, false, 3, 3, 512) == 128 * (512 + 272) * 1.75);  // 12: then one alone, at speed 4 / 3
  CHECK(time(Pass::forward, true, 1, 1, 256) == 128 * (256 + 272) * 0.75);   // 2: the longer one, alone
  CHECK(time(Pass::forward, true, 3, 3, 256) == 128 * (128 + 272));          // 6: two short ones, at speed 2
  CHECK(time(Pass::forward, true, 16, 16, 256) == 128 * 16 * (400 + 528) / 4 / 2);  // 32: a quarter of all
  CHECK(time(Pass::backward, true, 4, 2, 256) ==
        32 * 2 * 4 * (864 + 608) / 4 / 2);  // 16 of keys, with the queries of two heads
}

const Variant& decode() { return grid::variant_named("decode"); }

TEST_CASE("cpu: decode is right with one split, two and many, around the edges of splits and tiles, and as predicted") {
  std::vector<FullProblem> problems;
  for (const int Nk : {1, 63, 64, 65, 127, 129, 256})
    problems.push_back(grid::problem_of({.H = 4, .Hkv = 1, .Nq = 1, .Nk = Nk, .d = 64}));
  problems.push_back(grid::problem_of({.H = 4, .Hkv = 2, .Nq = 3, .Nk = 192, .d = 128}));
  problems.push_back(causal(grid::problem_of({.B = 2, .H = 6, .Hkv = 2, .Nq = 7, .Nk = 200, .d = 128})));  // 21 rows, two tiles
  problems.push_back(causal(grid::problem_of({.H = 4, .Hkv = 2, .Nq = 9, .Nk = 150, .d = 59})));
  problems.back().bias = BiasKind::matrix;
  problems.push_back(
      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 200, .Nk = 256, .d = 64})));  // the first queries: empty splits
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, Pass::forward);
    const Checker checker(p, inputs, Pass::forward, Sample{});
    for (const TileChoice& choice : decode().tiles(p, Pass::forward, grid::device().limits())) {
      Runner runner(grid::device(), decode(), p, inputs, Pass::forward, choice.tiles);
      runner.run();
      const std::string failed = grid::failures(checker.check(runner.results()));
      CHECK_MESSAGE(failed.empty(), "splits of " << choice.tiles.Bc << " on " << describe(p) << "\n" << failed);
      grid::check_prediction(decode(), p, Pass::forward, choice.tiles);
    }
  }
}

TEST_CASE("cpu: a fixed split gives the bits of any batch, the default fills the GPU with this one") {
  const FullProblem batch = grid::problem_of({.B = 3, .H = 4, .Hkv = 2, .Nq = 2, .Nk = 300, .d = 64});
  FullProblem alone = batch;
  alone.B = 1;
  for (const int keys : {64, 128, 320}) {
    Inputs all = make_inputs(batch, Pass::forward), one = make_inputs(alone, Pass::forward);
    Runner together(grid::device(), decode(), batch, all, Pass::forward, Tiles{8, keys});
    together.run();
    for (int b = 0; b < batch.B; ++b) {
      for (auto tensor : {&Inputs::Q, &Inputs::K, &Inputs::V}) {
        auto& values = (one.*tensor).values;
        std::copy_n((all.*tensor).values.begin() + static_cast<std::ptrdiff_t>(b * values.size()), values.size(),
                    values.begin());
      }
      Runner single(grid::device(), decode(), alone, one, Pass::forward, Tiles{8, keys});
      single.run();
      const std::vector<float> got = single.results().O.values, expected = together.results().O.values;
      CHECK_MESSAGE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<std::ptrdiff_t>(b * got.size())),
                    "sequence " << b << ", splits of " << keys);
    }
  }
  FullProblem p = grid::problem_of({.H = 32, .Hkv = 8, .Nq = 1, .Nk = 131072, .d = 128});
  const DeviceLimits limits = grid::device().limits();
  CHECK(decode().tiles(p, Pass::forward, limits).front().tiles == Tiles{8, 4096});  // 8 heads in 32 splits: two blocks per SM
  p.B = 8;
  CHECK(decode().tiles(p, Pass::forward, limits).front().tiles == Tiles{8, 32768});
}

TEST_CASE("chapter: decode is the fastest for problems like its own alone") {
  const auto fastest = [](const FullProblem& p) { return fastest_variant(Backend::cpu, p, Pass::forward, {}); };
  FullProblem p = grid::problem_of({.H = 32, .Hkv = 8, .Nq = 4, .Nk = 1000, .d = 128});
  REQUIRE(fastest(p) != nullptr);
  CHECK(fastest(p)->name == std::string("decode"));
  p.Nq = 5;  // 20 rows
  CHECK(fastest(p) == nullptr);
}

}  // namespace
}  // namespace flash
