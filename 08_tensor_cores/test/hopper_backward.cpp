// What chapter 08 claims of the backward steps for Hopper. The grid that every stage passes is in common/grid.
#include "08_tensor_cores/test/parts.hpp"
#include "common/attention/cost.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace flash {
namespace {

using grid::causal;
using grid::scaled;
using grid::Simulated;
using grid::with_bias;
using namespace tensor_test;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Columns that a step computes with.
std::int64_t width_of(const std::string& step, int d) {
  if (step == "relay") d = d <= 160 ? 160 : d <= 192 ? 192 : 256;
  return (d + 31) / 32 * 32;
}

/// Several tiles along both axes, the first 65 queries see no key, and two query heads share a key/value head.
FullProblem many_queries(int d = 64) { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 300, .Nk = 235, .d = d})); }

/// Checks all steps that take the problem, with all choices of tiles or the default ones.
void check_on(const FullProblem& p, const Inputs& inputs, bool all_tiles = true) {
  const Checker checker(p, inputs, Pass::backward, Sample{});
  for (const Variant& v : backward_steps(/*for_hopper=*/true)) {
    if (!refusal(v, p).empty()) continue;
    for (const TileChoice& choice : choices(v, p, Pass::backward)) {
      check(checker, v, choice.tiles, p, inputs, Pass::backward);
      if (!all_tiles) break;
    }
  }
}
void check_on(const FullProblem& p, bool all_tiles = true) { check_on(p, make_inputs(p, Pass::backward), all_tiles); }

TEST_CASE("cpu: products, atomics, launches and bank conflicts of the backward steps for Hopper") {
  std::vector<FullProblem> problems;
  for (const int d : {32, 64, 96, 128, 160, 192, 256})
    problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 192, .d = d})));
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, Pass::backward);
    for (const Variant& v : backward_steps(/*for_hopper=*/true)) {
      if (!refusal(v, p).empty()) continue;
      const std::string step = v.name;
      for (const TileChoice& choice : choices(v, p, Pass::backward)) {
        INFO(what(v, choice.tiles, p));
        const auto [Br, Bc] = choice.tiles;
        const Counters got = Runner(grid::device(), v, p, inputs, Pass::backward, choice.tiles).count();
        const std::int64_t visited = p.H * visits(p, choice.tiles).tiles, width = width_of(step, p.d);
        // Two warpgroups that share 64 queries have 64 columns of dQ each, d = 96 or not; relay takes 64 or 128 at a time. From `lead` on
        // one warpgroup has all columns.
        const bool shares_dQ = !v.in_more && !is_from(v, "hopper_backward/4_lead");
        const bool whole_panels = step == "relay" || (shares_dQ && Bc / 64 == 2 && Br == 64);
        const std::int64_t of_dQ = whole_panels ? (width + 63) / 64 * 64 : width;
        CHECK(got.tensor_core_products == static_cast<std::uint64_t>(visited * Br * Bc * (4 * width + of_dQ)));
        // Each number that is added, in bulk as well. Where blocks take turns the first tile of keys, which all queries see here, stores
        // instead; every tile passes a turn on, and every block draws a ticket, the last of which is followed by a reset.
        const std::int64_t Tr = (p.Nq + Br - 1) / Br, Tc = (p.Nk + Bc - 1) / Bc;
        const std::int64_t in_turns = (visited - p.H * Tr) * Br * width + visited + p.Hkv * Tc + 1;
        CHECK(got.atomics == static_cast<std::uint64_t>(v.atomic_dQ ? visited * Br * width : in_turns));
        CHECK(got.launches == (step == "divided" ? 4 : 3));  // prepare, the products, convert; the sum of the parts
        if (p.d % 64 == 0) CHECK(got.bank_conflicts == 0);   // rows of a panel that is not whole leave with some
      }
    }
  }
}

TEST_CASE("cpu: the backward steps for Hopper are right around the edges of tiles (long)") {
  std::vector<FullProblem> problems{many_queries(40)};
  for (const auto& [d, more] : {std::pair{64, -1}, {64, 0}, {64, 1}, {96, -1}, {128, -1}, {128, 1}}) {
    problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 64 + more, .Nk = 128 + more, .d = d}));
    problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128 + more, .Nk = 64 + more, .d = d})));
    problems.back().dtype = Dtype::bf16;
  }
  for (const int d : {129, 160, 192, 256}) {
    problems.push_back(causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 130, .Nk = 129, .d = d})));
    problems.back().dtype = d == 192 ? Dtype::bf16 : Dtype::fp16;
  }
  for (const FullProblem& p : grid::counted(problems)) check_on(p);
}

TEST_CASE("cpu: one query, and a single key") {
  for (const int d : {64, 128, 256}) {
    check_on(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 1, .Nk = 170, .d = d}));
    check_on(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 1, .Nk = 70, .d = d})));
    check_on(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 1, .d = d})));
  }
}

/// Scores of about `level`, whatever the pair: missing keys, whose score would be 0, are then far above or below all others.
Inputs with_level(const FullProblem& p, float level) {
  Inputs inputs = make_inputs(p, Pass::backward);
  const float root = std::sqrt(std::abs(level) / p.scale);
  for (int h = 0; h < p.H; ++h) {
    for (int i = 0; i < p.Nq; ++i) inputs.Q(0, h, i, 0) = round_to(p.dtype, root);
  }
  for (int h = 0; h < p.Hkv; ++h) {
    for (int j = 0; j < p.Nk; ++j) inputs.K(0, h, j, 0) = round_to(p.dtype, level < 0.0f ? -root : root);
  }
  return inputs;
}

TEST_CASE("cpu: half a tile of keys is missing, and every L far below -88 or far above") {
  // e^(0 - L) of a missing key would be infinite, and times a row of zeros NaN.
  for (const bool masked : {false, true}) {
    for (const float level : {-300.0f, 300.0f}) {
      if (!masked && level > 0.0f) continue;
      FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 192, .Nk = 192, .d = masked ? 64 : 128});
      p.causal = masked;
      check_on(p, with_level(p, level));
    }
  }
}

TEST_CASE("cpu: windows, softcaps and sequences that end within tiles (long)") {
  std::vector<FullProblem> problems;
  for (const char* const d : {"64", "96", "128"}) {
    for (const char* const options :
         {"--seq-q 300 --seq-k 235 --window 40,20", "--seq-q 64 --seq-k 400 --window 100,0 --softcap 0.5",
          "--lengths 129:130,1,64:200,0:5,7:0,127 --softcap 0.5",
          "--lengths 70,200:150,128 --causal --window 64,-1 --layout bnhd"})
      problems.push_back(grid::parsed(std::string("--dtype fp16 --heads 2 --kv-heads 1 --head-dim ") + d + " " + options));
  }
  for (const FullProblem& p : grid::counted(problems)) check_on(p);
}

TEST_CASE("cpu: a tile of keys that no query sees, and queries that see no key, by a bias of -inf") {
  const int d = 40;
  const FullProblem p = with_bias(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 130, .Nk = 140, .d = d}), BiasKind::matrix);
  Inputs inputs = make_inputs(p, Pass::backward);
  for (int h = 0; h < p.H; ++h) {
    for (int i = 0; i < p.Nq; ++i) {
      for (int j = 0; j < p.Nk; ++j) {
        if (j < 128 || i == 3 || (i >= 64 && i < 128)) inputs.bias(0, h, i, j) = -infinity;
      }
    }
  }
  check_on(p, inputs);
  for (const Variant& v : backward_steps(/*for_hopper=*/true)) {
    if (!refusal(v, p).empty()) continue;
    const Results<float> got = grid::run(v, p, inputs, Pass::backward);
    for (int c = 0; c < d; ++c)
      CHECK((got.dK(0, 0, 127, c) == 0.0f && got.dV(0, 0, 0, c) == 0.0f && got.dQ(0, 1, 3, c) == 0.0f));
  }
}

TEST_CASE("cpu: the backward steps for Hopper with a scale of any sign, and scores beyond 2^24") {
  const FullProblem p = causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 130, .d = 32}));
  for (const float scale : {-0.2f, 0.0f, 0.2f, 1e-30f}) {
    for (const BiasKind kind : {BiasKind::none, BiasKind::matrix})
      check_on(with_bias(scaled(p, scale), kind), /*all_tiles=*/false);
  }
  FullProblem large = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 130, .d = 64});
  large.input = InputKind::large;
  for (const BiasKind kind : {BiasKind::none, BiasKind::alibi}) {
    large.bias = kind;
    check_on(large, make_inputs(large, Pass::backward), /*all_tiles=*/false);
  }
}

TEST_CASE("cpu: the order of threads and blocks changes no bit but of a dQ that is summed in any order") {
  const std::vector<FullProblem> problems{causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 130, .Nk = 140, .d = 128})),
                                          grid::problem_of({.H = 2, .Hkv = 1, .Nq = 100, .Nk = 130, .d = 64})};
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, Pass::backward);
    const Checker checker(p, inputs, Pass::backward, Sample{});
    for (const Variant& v : backward_steps(/*for_hopper=*/true)) {
      for (const TileChoice& choice : choices(v, p, Pass::backward)) {
        const auto run = [&](const Variant& step) {
          Runner runner(grid::device(), step, p, inputs, Pass::backward, choice.tiles);
          runner.run();
          return runner.results();
        };
        // The ladder's steps sum in the same order.
        const Results<float> first = run(v.takes == plain_problem ? grid::variant_named("warpgroups") : v);
        for (const Order order : {Order::random, Order::reverse}) {
          const Simulated in_order({.order = order, .seed = 3, .os_threads = 3});
          CHECK_MESSAGE(grid::repeats(v, checker, first, run(v)), what(v, choice.tiles, p));
        }
      }
    }
  }
}

TEST_CASE("cpu: blocks take turns at dQ, however many run at a time") {
  const FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 500, .Nk = 300, .d = 12});
  const Inputs inputs = make_inputs(p, Pass::backward);
  const Checker checker(p, inputs, Pass::backward, Sample{});
  const Variant& v = grid::variant_named("ordered");
  Runner runner(grid::device(), v, p, inputs, Pass::backward, Tiles{64, 64});
  const Simulated one_by_one({.os_threads = 1});
  runner.run();
  const Results<float> first = runner.results();
  for (int repeat = 0; repeat < (grid::sanitized() ? 1 : 3); ++repeat) {
    const Simulated side_by_side({.os_threads = 5});
    runner.run();
    CHECK_MESSAGE(grid::repeats(v, checker, first, runner.results()), "repeat " << repeat);
  }
}

/// The number of subgroups into which `divided` divides a group, by the heads of its workspace.
int subgroups_of(const FullProblem& p) {
  for (const WorkspaceSpec& spec : grid::variant_named("divided").workspace(p, Pass::backward))
    if (spec.name == std::string("dK_partial")) return static_cast<int>(spec.shape[1]) / p.Hkv;
  return 0;
}

TEST_CASE("grid: blocks divide the query heads of a group, and each run sums their dK and dV to the same bits") {
  struct Case {
    FullProblem problem;
    int subgroups;
  };
  std::vector<Case> cases{
      {causal(grid::problem_of({.H = 4, .Hkv = 1, .Nq = 192, .Nk = 130, .d = 128})), 4},  // 62 queries see no key
      {grid::problem_of({.B = 2, .H = 6, .Hkv = 2, .Nq = 250, .Nk = 65, .d = 59}), 3},    // rows without 16-byte alignment
      {with_bias(grid::problem_of({.H = 16, .Hkv = 1, .Nq = 128, .Nk = 400, .d = 40}), BiasKind::alibi), 8},  // two heads each
  };
  cases[1].problem.dtype = Dtype::bf16;
  if (grid::sanitized()) cases.resize(1);
  const Variant& v = grid::variant_named("divided");
  for (const Case& c : cases) {
    const FullProblem& p = c.problem;
    CHECK_MESSAGE(subgroups_of(p) == c.subgroups, describe(p));
    if (!why_it_cannot_run(v, p, Pass::backward, grid::device().limits()).empty()) continue;  // no Hopper GPU
    const Inputs inputs = make_inputs(p, Pass::backward);
    const Checker checker(p, inputs, Pass::backward, Sample{});
    for (const TileChoice& choice : choices(v, p, Pass::backward)) {
      INFO(what(v, choice.tiles, p));
      Runner runner(grid::device(), v, p, inputs, Pass::backward, choice.tiles);
      if (grid::device().info().kind == Backend::cpu) {
        const Counters counters = runner.count();
        CHECK(counters.launches ==
              (p.d % 8 == 0 ? 4 : 12));  // prepare, the products, the sum over subgroups, convert; 8 copies
        grid::check_counts(v, p, Pass::backward, choice.tiles, counters);
      } else {
        runner.run();
      }
      const Results<float> first = runner.results();
      check(checker, v, choice.tiles, p, runner);
      const Simulated in_another_order({.order = Order::random, .seed = 4, .os_threads = 3});
      runner.run();
      CHECK(grid::repeats(v, checker, first, runner.results()));
    }
  }
}

TEST_CASE("chapter: groups are divided only where whole ones leave SMs idle or overflow L2") {
  const auto subgroups = [](int H, int Hkv, int N, bool masked, int d = 128, int B = 1) {
    FullProblem p = grid::problem_of({.B = B, .H = H, .Hkv = Hkv, .Nq = N, .Nk = N, .d = d});
    p.causal = masked;
    return subgroups_of(p);
  };
  CHECK(subgroups(64, 8, 1024, true) == 4);   // 64 blocks of whole groups for 132 SMs, and the longest take twice the average
  CHECK(subgroups(64, 8, 1024, false) == 2);  // 128 blocks of equal length
  FullProblem few_blocks = grid::problem_of({.H = 64, .Hkv = 8, .Nq = 1024, .Nk = 1024, .d = 128});
  CHECK(choices(grid::variant_named("divided"), few_blocks, Pass::backward).front().tiles == Tiles{64, 128});
  CHECK(subgroups(64, 8, 2048, true) == 2);
  CHECK(subgroups(64, 8, 2048, false) == 1);  // 128 blocks already
  CHECK(subgroups(64, 8, 4096, true) == 2);   // 256 blocks, but L2 holds half of their heads
  CHECK(subgroups(32, 1, 4096, true) == 8);
  CHECK(subgroups(64, 64, 256, true) == 1);  // a group of one head cannot be divided
  CHECK(subgroups(2, 1, 64, true) == 1);     // summing would take longer than it saves
  CHECK(subgroups(32, 8, 2048, true, 128, 4) == 1);
  CHECK(subgroups(1 << 20, 1, 1, false) > 1);  // at most one per SM, found at once
  CHECK(subgroups(1 << 20, 1, 1, false) <= 132);
  for (const WorkspaceSpec& spec : grid::variant_named("divided").workspace(
           grid::problem_of({.H = 64, .Hkv = 8, .Nq = 1000, .Nk = 1000, .d = 100}), Pass::backward)) {
    if (spec.name != std::string("dV_partial")) continue;
    CHECK(spec.shape == std::array<std::int64_t, 4>{1, 2 * 8, 1024, 128});  // whole tiles
    return;
  }
  FAIL("no dV_partial");
}

TEST_CASE(
    "chapter: the backward steps for Hopper have tiles for each d up to 128, and all but relay refuse more by a sentence") {
  const DeviceLimits limits = grid::device().limits();
  for (const Variant& v : backward_steps(/*for_hopper=*/true)) {
    const std::string name = v.name;
    for (int d = 1; d <= 256; ++d) {
      INFO(name << ", d=" << d);
      const FullProblem p = grid::problem_of({.Nq = 1024, .Nk = 1024, .d = d});
      const bool takes = d <= 128 || name == "relay";
      CHECK(refusal(v, p).empty() == takes);
      if (!takes) CHECK(refusal(v, p).find("--variant relay") != std::string::npos);
      if (!takes) continue;
      const std::vector<TileChoice> all = choices(v, p, Pass::backward);
      REQUIRE(all.size() == (name == "relay" ? 1 : 2));
      for (const TileChoice& choice : all) CHECK(choice.shared_bytes <= limits.shared_bytes);
    }
  }
}

TEST_CASE("chapter: for each problem one backward step besides divided calls itself the fastest, and takes it") {
  for (const int d : {32, 64, 96, 128, 192}) {
    for (const int N : {512, 4096}) {
      for (const int Hkv : {1, 8, 64}) {
        for (const FullProblem& p : {grid::problem_of({.B = 8, .H = 64, .Hkv = Hkv, .Nq = N, .Nk = N, .d = d}),
                                     causal(grid::problem_of({.B = 8, .H = 64, .Hkv = Hkv, .Nq = N, .Nk = N, .d = d}))}) {
          for (const FullProblem& q : {p, with_bias(p, BiasKind::alibi)}) {
            int claims = 0;
            for (const Variant& v : backward_steps(/*for_hopper=*/true)) {
              const std::string name = v.name;
              if (v.fastest == nullptr || name == "divided" || !v.fastest(q, Pass::backward)) continue;
              ++claims;
              CHECK_MESSAGE(refusal(v, q).empty(), name << " on " << describe(q));
            }
            CHECK_MESSAGE((claims == 1 || !grid::only_variant().empty()), describe(q));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flash
