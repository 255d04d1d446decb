// What chapter 08 claims of the backward steps. The grid that every stage passes is in common/grid.
#include "08_tensor_cores/test/parts.hpp"
#include "common/attention/cost.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace flash {
namespace {

using grid::causal;
using grid::scaled;
using grid::Simulated;
using grid::with_bias;
using namespace tensor_test;

/// Several tiles along both axes, the first 65 queries see no key, and two query heads share a key/value head.
FullProblem many_queries(int d = 64) { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 300, .Nk = 235, .d = d})); }

/// Blocks that share a tile of keys: at width 256 steps 1 and 2 have no room for all columns of dK and dV, and compute scores twice.
std::int64_t parts(const Variant& v, const FullProblem& p) { return !is_from(v, "backward/3_halves") && p.d > 128 ? 2 : 1; }

std::int64_t width_of(int d) { return d <= 128 ? (d + 31) / 32 * 32 : 256; }

TEST_CASE("cpu: HBM bytes of the backward steps are those of the formula (8.17)") {
  // On sm_90 the grid holds every problem to the predictions, of both passes. On sm_75 tiles are smaller.
  const std::vector<FullProblem> problems{
      with_bias(causal(grid::problem_of({.Nq = 70, .Nk = 170, .d = 16})), BiasKind::alibi), many_queries(),
      causal(grid::problem_of({.B = 2, .H = 2, .Hkv = 1, .Nq = 272, .Nk = 100, .d = 96})),
      with_bias(causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 113, .Nk = 203, .d = 59})), BiasKind::matrix)};
  const Simulated turing({.target_sm = 75});
  for (const FullProblem& p : grid::counted(problems)) {
    for (const Variant& v : backward_steps(/*for_hopper=*/false)) {
      if (refusal(v, p).empty()) grid::check_prediction(v, p, Pass::backward);
    }
  }
}

TEST_CASE("cpu: no bank conflicts, whatever the tiles, and as many products, atomics and launches as the chapter says") {
  std::vector<FullProblem> problems;
  for (const int d : {32, 64, 96, 128, 256}) {
    problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 192, .d = d})));
  }
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, Pass::backward);
    for (const Variant& v : backward_steps(/*for_hopper=*/false)) {
      const bool two_kernels = !v.atomic_dQ;
      for (const TileChoice& choice : choices(v, p, Pass::backward)) {
        INFO(what(v, choice.tiles, p));
        const Tiles t = choice.tiles;
        const Counters got = Runner(grid::device(), v, p, inputs, Pass::backward, t).count();
        const auto heads = static_cast<std::uint64_t>(p.B * p.H);
        const auto tile = static_cast<std::uint64_t>(std::int64_t{t.Br} * t.Bc * width_of(p.d));
        const auto tiles = static_cast<std::uint64_t>(visits(p, t).tiles);
        const auto turned = static_cast<std::uint64_t>(visits(p, {t.Bc, t.Br}).tiles);
        CHECK(got.bank_conflicts == 0);
        const auto scores = 2 * static_cast<std::uint64_t>(parts(v, p));
        CHECK(got.tensor_core_products ==
              heads * tile * (two_kernels ? (scores + 2) * tiles + 3 * turned : (scores + 3) * tiles));
        CHECK(got.atomics == (two_kernels ? 0 : heads * tiles * static_cast<std::uint64_t>(t.Br * width_of(p.d))));
        CHECK(got.launches == 3);  // prepare; two kernels, or one and convert
      }
    }
  }
}

/// Checks all steps on a problem with all choices of tiles, or with the default ones.
void check_choices_on(const FullProblem& p, bool all) {
  const Inputs inputs = make_inputs(p, Pass::backward);
  const Checker checker(p, inputs, Pass::backward, Sample{});
  for (const Variant& v : backward_steps(/*for_hopper=*/false)) {
    if (!refusal(v, p).empty()) continue;
    for (const TileChoice& choice : choices(v, p, Pass::backward)) {
      check(checker, v, choice.tiles, p, inputs, Pass::backward);
      if (!all) break;
    }
  }
}

TEST_CASE("cpu: the backward steps are right around the edges of tiles, whatever the GPU (long)") {
  for (const int sm : {75, 80, 90}) {
    if (grid::sanitized() && sm != 90) continue;
    const Simulated gpu({.target_sm = sm});
    std::vector<FullProblem> problems;
    for (const int d : {30, 64, 96, 128}) {
      const Tiles t = choices(grid::variant_named("staggered"), grid::problem_of({.d = d}), Pass::backward).front().tiles;
      problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 3 * t.Br + 1, .Nk = t.Bc + 1, .d = d})));
      if (sm != 90) continue;
      problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = t.Br - 1, .Nk = 2 * t.Bc - 1, .d = d}));
      problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = t.Br, .Nk = 2 * t.Bc, .d = d})));
      problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = t.Br + 1, .Nk = 2 * t.Bc + 1, .d = d})));
    }
    if (sm == 90) problems.push_back(many_queries(40));
    for (const FullProblem& p : grid::counted(problems)) check_choices_on(p, /*all=*/sm == 90);
  }
}

TEST_CASE("cpu: d = 256, where the device has room for it") {
  const FullProblem p = causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 70, .Nk = 130, .d = 250}));
  for (const FullProblem& q : grid::counted({p, with_bias(p, BiasKind::alibi)})) check_choices_on(q, /*all=*/true);
  const Simulated turing({.target_sm = 75});
  for (const Variant& v : backward_steps(/*for_hopper=*/false)) CHECK(choices(v, p, Pass::backward).empty());
}

TEST_CASE("cpu: masked scores stay masked, whatever the sign of the scale") {
  const FullProblem p = causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 140, .Nk = 150, .d = 32}));
  for (const float scale : {-0.2f, 0.0f, 0.2f}) {
    if (grid::sanitized() && scale >= 0) continue;
    for (const BiasKind kind : {BiasKind::none, BiasKind::matrix})
      check_choices_on(with_bias(scaled(p, scale), kind), /*all=*/false);
  }
}

TEST_CASE("cpu: dK and dV of steps 1 and 2 are the same to the last bit") {
  // Both add the tiles of Q in the same order, if they have the same tiles.
  for (const FullProblem& p : grid::counted({grid::problem_of({.Nq = 150, .Nk = 260, .d = 96}), many_queries(128)})) {
    const Inputs inputs = make_inputs(p, Pass::backward);
    const Tiles tiles{32, 64};
    Runner two_runner(grid::device(), grid::variant_named("seven_products"), p, inputs, Pass::backward, tiles);
    Runner one_runner(grid::device(), grid::variant_named("five_products"), p, inputs, Pass::backward, tiles);
    two_runner.run();
    one_runner.run();
    const Results<float> two = two_runner.results();
    Results<float> one = one_runner.results();
    one.dQ = two.dQ;
    CHECK(identical(two, one));
  }
}

TEST_CASE("cpu: no order of blocks changes a bit of a gradient, but of dQ summed by atomics, which stays within tolerance") {
  // Many tiles of keys for few queries: the sums of dQ have many orders.
  const FullProblem p = causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 40, .Nk = 600, .d = 30}));
  const Inputs inputs = make_inputs(p, Pass::backward);
  const Checker checker(p, inputs, Pass::backward, Sample{});
  for (const Variant& v : backward_steps(/*for_hopper=*/false)) {
    Runner runner(grid::device(), v, p, inputs, Pass::backward);
    const Simulated one_by_one({.os_threads = 1});
    runner.run();
    const Results<float> first = runner.results();
    for (int repeat = 0; repeat < (grid::sanitized() ? 2 : 3); ++repeat) {
      const Simulated side_by_side({.os_threads = 2 + repeat % 3});
      runner.run();
      CHECK_MESSAGE(grid::repeats(v, checker, first, runner.results()), std::string(v.name) << ", repeat " << repeat);
    }
  }
}

float largest(const HostTensor<float>& gradient) {
  float max_abs = 0.0f;
  for (const float value : gradient.values) max_abs = std::isnan(value) ? INFINITY : std::max(max_abs, std::abs(value));
  return max_abs;
}

TEST_CASE("cpu: the only key of a query weighs 1, however large its score is") {
  // P = 2^(log2(e) (S - L)) with S = L, which 2^(log2(e) S - [log2(e) L]) misses once log2(e) L is rounded to integers, or overflows.
  struct OfScore {
    Dtype dtype;
    float q, k, rest;  // S = q k + rest
  };
  for (const auto& [dtype, q, k, rest] : {OfScore{Dtype::fp16, 1024, 768, 1}, OfScore{Dtype::bf16, 1024, 768, 1},
                                          OfScore{Dtype::fp16, 4096, 3014, 335}, OfScore{Dtype::bf16, 0x1p64f, 0x1.7p63f, 0}}) {
    const float score = q * k + rest;
    FullProblem p = scaled(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 1, .d = 64}), 1.0f);  // whole tiles of queries
    p.dtype = dtype, p.input = InputKind::ones;
    Inputs inputs = make_inputs(p, Pass::backward);
    for (int c = 0; c < p.d; ++c) {
      for (int i = 0; i < p.Nq; ++i) inputs.Q(0, 0, i, c) = c == 0 ? q : c == 1 ? 1.0f : 0.0f;
      inputs.K(0, 0, 0, c) = c == 0 ? k : c == 1 ? rest : 0.0f;
    }
    for (HostTensor<float>* const tensor : {&inputs.V, &inputs.dO})
      std::fill(tensor->values.begin(), tensor->values.end(), 1.0f);
    for (const Variant& v : grid::variants()) {
      if (v.backward == nullptr || v.needs != Features::none || (is_for_hopper(v) && grid::device().limits().sm != 90))
        continue;
      INFO(std::string(v.name) << ", S = " << score);
      const Results<float> got = grid::run(v, p, inputs, Pass::backward);
      // For Hopper all but one round log2(e) L as well as log2(e) S in plain problems.
      if (is_for_hopper(v) && v.name != std::string("general")) {
        CHECK(std::abs(got.dV(0, 0, 0, 0) - 128.0f) <= 128.0f * 0x1p-23f * score);
      } else {
        CHECK(got.dV(0, 0, 0, 0) == 128.0f);
      }
      CHECK(largest(got.dQ) == 0.0f);
      CHECK(largest(got.dK) == 0.0f);
    }
  }
}

TEST_CASE("chapter: what the 16 bits of O leave of dS where it should be zero") {
  // V_j = v for all j: O_i = v whatever P, so dP_ij = D_i and dS = 0. Here P sums to 1 but for its rounding, and so O to v: dS is small.
  const FullProblem p = causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 50, .Nk = 90, .d = 40}));
  for (const Variant& v : backward_steps(/*for_hopper=*/false)) {
    INFO(std::string(v.name));
    Inputs inputs = make_inputs(p, Pass::backward);
    for (int j = 0; j < p.Nk; ++j) {
      for (int c = 0; c < p.d; ++c) inputs.V(0, 0, j, c) = inputs.V(0, 0, 0, c);
    }
    const Results<float> got = grid::run(v, p, inputs, Pass::backward);
    CHECK(largest(got.dQ) < 5e-3f);
    CHECK(largest(got.dK) < 2e-2f);
    CHECK(largest(got.dV) > 0.1f);
  }
}

TEST_CASE("chapter: each GPU has backward tiles for each d") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (int d = 1; d <= 256; ++d) {
      const FullProblem p = grid::problem_of({.Nq = 1024, .Nk = 1024, .d = d});
      for (const Variant& v : backward_steps(/*for_hopper=*/false)) {
        INFO(std::string(v.name) << ", sm_" << sm << ", d=" << d);
        const std::vector<TileChoice> all = choices(v, p, Pass::backward);
        CHECK(all.empty() == (sm == 75 && d > 128));
        for (const TileChoice& choice : all) {
          CHECK(choice.shared_bytes <= limits.shared_bytes);
          CHECK(std::count_if(all.begin(), all.end(), [&](const TileChoice& c) { return c.tiles == choice.tiles; }) == 1);
        }
      }
    }
  }
}

TEST_CASE("chapter: problems that need a larger backward grid than CUDA has are refused") {
  for (const Variant& v : grid::variants()) {
    if (v.backward == nullptr || v.needs != Features::none) continue;
    FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 64, .Nk = 1 << 30, .d = 64});
    p.H = p.Hkv = 15;
    CHECK(refusal(v, p) == "");
    p.H = p.Hkv = 16;  // 2^27 blocks of 8 rows each
    CHECK(refusal(v, p) != "");
  }
}

TEST_CASE("chapter: a head's sum of dQ that an int cannot count is refused") {
  for (const Variant& v : grid::variants()) {
    if (v.backward == nullptr || v.needs != Features::none) continue;
    for (auto [d, most] : {std::pair{33, 33'554'304}, {64, 33'554'304}, {128, 16'777'088}}) {
      if (v.name == std::string("relay")) most = 13'421'696;  // it has 160 columns or more
      FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = most, .Nk = 64, .d = d});
      CHECK(refusal(v, p) == "");
      p.Nq = most + 1;
      const std::string allowed = "1 to " + std::to_string(most) + ", as offsets";
      CHECK((refusal(v, p).find(allowed) != std::string::npos) == (std::string(v.name) != "seven_products"));
    }
  }
}

TEST_CASE("chapter: each sequence of a ragged batch has whole blocks of rows in L, D and the sum of dQ") {
  const Variant& v = grid::variant_named("options_backward");
  FullProblem p = grid::problem_of({.H = 2, .Hkv = 2, .Nq = 300, .Nk = 300, .d = 64});
  p.sequences = {{0, 100, 300}, {0, 100, 300}};
  for (const WorkspaceSpec& spec : workspaces_of(v, p, Pass::backward)) {
    CHECK(spec.shape[3] == (384 + 2 * 128) * (spec.name == std::string("dQ_accum") ? 64 : 1));
  }
  CHECK(refusal(v, p) == "");
  p.Nq = p.Nk = 1 << 18;  // of one row each
  p.sequences = {};
  for (int row = 0; row <= p.Nq; ++row) p.sequences.queries.push_back(row), p.sequences.keys.push_back(row);
  CHECK(refusal(v, p).find("262144 sequences of 262144 queries") != std::string::npos);
}

}  // namespace
}  // namespace flash
