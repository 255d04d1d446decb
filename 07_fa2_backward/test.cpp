// What chapter 07 claims. The grid that every stage passes is in common/grid.
#include "common/attention/cost.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/parts/forward_pass.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace flash {
namespace {

using grid::causal;
using grid::Simulated;
using grid::with_bias;

/// Several tiles along both axes, the first 64 queries and one more see no key, and two query heads
/// share a key/value head.
FullProblem many_tiles() { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 200, .Nk = 135, .d = 40})); }

/// "two_kernels, tiles 64 x 128 on B=1 ...", for messages.
std::string what(const Variant& v, const Tiles& t, const FullProblem& p) {
  return std::string(v.name) + ", tiles " + std::to_string(t.Br) + " x " + std::to_string(t.Bc) + " on " + describe(p);
}

std::vector<TileChoice> choices(const Variant& v, const FullProblem& p, Pass pass = Pass::backward) {
  return v.tiles(p, pass, grid::device().limits());
}

TEST_CASE(
    "cpu: bytes are those of the formula (7.7), and sectors, barriers and warp operations as "
    "predicted") {
  // On sm_90 the grid holds every problem to the predictions, of both passes. On older GPUs tiles
  // are smaller.
  const std::vector<FullProblem> problems{
      many_tiles(), causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 100, .Nk = 100, .d = 128})),
      with_bias(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 65, .Nk = 180, .d = 59})), BiasKind::matrix)};
  for (const int sm : {75, 80}) {
    const Simulated gpu({.target_sm = sm});
    for (const FullProblem& p : grid::counted(problems)) {
      for (const Variant& v : grid::variants_for(p)) grid::check_prediction(v, p, Pass::backward);
    }
  }
}

TEST_CASE("chapter: the bytes of exercise 2") {
  const FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 1024, .Nk = 1024, .d = 64});
  const auto bytes = [&](const char* name) {
    const Moved all = sum_of(predict(grid::variant_named(name), p, Pass::backward, DeviceLimits{}, Tiles{64, 64}).tensors);
    return all.read + all.written;
  };
  CHECK(bytes("two_halves") == 19279872);
  CHECK(bytes("one_kernel") == 18747392);
}

TEST_CASE("cpu: bank conflicts, shuffles and atomics of each choice of tiles, and right on whole tiles (long)") {
  std::vector<FullProblem> problems;  // of whole tiles: the copies of a tail, element by element, do meet banks twice
  for (const int d : {32, 64, 96, 128}) {
    problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = d})));
  }
  problems.push_back(with_bias(problems.back(), BiasKind::matrix));
  problems.back().bias_gradient = true;
  for (const int d : {64, 128}) {
    problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = d}));
    problems.back().score = Score::lorentz;
    problems.push_back(problems.back());
    problems.back().values = Values::centroid;
  }
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, InputKind::normal, 1, Pass::backward);
    const Checker checker(p, inputs, Pass::backward, Sample{});
    for (const Variant& v : grid::variants_for(p)) {
      const bool two_kernels = !v.atomic_dQ;
      for (const TileChoice& choice : choices(v, p)) {
        INFO(what(v, choice.tiles, p));
        Runner runner(grid::device(), v, p, inputs, Pass::backward, choice.tiles);
        const Counters got = runner.count();
        grid::expect_passed(checker.check(runner.results()), v, p);
        const Visits visited = visits(p, choice.tiles);
        const auto heads = static_cast<std::uint64_t>(p.B * p.H);
        CHECK(got.bank_conflicts == 0);
        const bool centroids = p.values == Values::centroid;  // a kernel more, with a barrier of its warps
        CHECK(got.warp_operations ==
              (centroids ? 11 : 5) * heads * static_cast<std::uint64_t>(p.Nq));  // D: a warp for each query
        CHECK(got.atomics == (two_kernels ? 0 : heads * static_cast<std::uint64_t>(visited.queries * p.d)));
        CHECK(got.launches == (two_kernels || p.bias_gradient || centroids ? 3u : 2u));
      }
    }
  }
}

/// Checks all variants on a problem, with their default tiles or with all choices.
void check_choices_on(const FullProblem& p, bool all) {
  const Inputs inputs = make_inputs(p, InputKind::normal, 71, Pass::backward);
  const Checker checker(p, inputs, Pass::backward, Sample{});
  for (const Variant& v : grid::variants_for(p)) {
    for (const TileChoice& choice : choices(v, p)) {
      Runner runner(grid::device(), v, p, inputs, Pass::backward, choice.tiles);
      runner.run();
      const std::string failed = grid::failures(checker.check(runner.results()));
      CHECK_MESSAGE(failed.empty(), what(v, choice.tiles, p) << "\n" << failed);
      if (!all) break;
    }
  }
}

TEST_CASE("cpu: right around the edges of tiles, whatever the GPU (long)") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    std::vector<FullProblem> problems{many_tiles()};
    for (const int d : {30, 64, 96, 128}) {
      const Tiles t = choices(grid::variants().front(), grid::problem_of({.d = d})).front().tiles;
      for (const int more : sm == 90 && d == 64 ? std::vector{-1, 1} : std::vector{1}) {
        problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = t.Br + more, .Nk = 2 * t.Bc + more, .d = d}));
        problems.push_back(causal(problems.back()));
        problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 2 * t.Br + more, .Nk = t.Bc + more, .d = d})));
      }
    }
    for (const FullProblem& p : grid::counted(problems)) check_choices_on(p, /*all=*/sm == 90);
  }
}

TEST_CASE(
    "cpu: rows beyond the last query add nothing, even where a negative ALiBi slope favours "
    "distant keys") {
  // One query beyond a whole tile: e^S overflows in the other rows of the last tile, and infinity
  // times 0 is NaN.
  const FullProblem p = with_bias(grid::problem_of({.H = 2, .Hkv = 2, .Nq = 65, .Nk = 300, .d = 32}), BiasKind::alibi);
  Inputs inputs = make_inputs(p, InputKind::normal, 76, Pass::backward);
  for (float& slope : inputs.bias.values) slope = -1.0f;
  const Checker checker(p, inputs, Pass::backward, Sample{});
  for (const Variant& v : grid::variants_for(p)) {
    const std::string failed = grid::failures(checker.check(grid::run(v, p, inputs, Pass::backward)));
    CHECK_MESSAGE(failed.empty(), v.name << "\n" << failed);
  }
}

TEST_CASE(
    "cpu: dK and dV of all steps are the same to the last bit, and dQ where there is one tile "
    "of keys") {
  // All add the tiles of Q in the same order. To dQ the atomics add one number for each tile of
  // keys (exercise 5): 0 + x has one order.
  const FullProblem short_keys = grid::problem_of({.H = 4, .Hkv = 2, .Nq = 100, .Nk = 32, .d = 64});
  const Inputs few = make_inputs(short_keys, InputKind::normal, 75, Pass::backward);
  const Results<float> shortest = grid::run(grid::variant_named("one_kernel"), short_keys, few, Pass::backward);
  for (const char* name : {"two_kernels", "two_halves"})
    CHECK(identical(grid::run(grid::variant_named(name), short_keys, few, Pass::backward), shortest));
  for (const FullProblem& p : grid::counted({many_tiles(), grid::problem_of({.Nq = 150, .Nk = 260, .d = 59})})) {
    const Inputs inputs = make_inputs(p, InputKind::normal, 72, Pass::backward);
    const Results<float> two = grid::run(grid::variant_named("two_kernels"), p, inputs, Pass::backward);
    CHECK(identical(two, grid::run(grid::variant_named("two_halves"), p, inputs, Pass::backward)));
    Results<float> one = grid::run(grid::variant_named("one_kernel"), p, inputs, Pass::backward);
    CHECK(two.dQ.values != one.dQ.values);
    one.dQ = two.dQ;
    CHECK(identical(two, one));
  }
}

TEST_CASE(
    "cpu: the order of blocks changes no bit of any gradient but the atomics' dQ, which stays "
    "within tolerance") {
  const FullProblem p = causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 40, .Nk = 260, .d = 30}));
  const Inputs inputs = make_inputs(p, InputKind::normal, 73, Pass::backward);
  const Checker checker(p, inputs, Pass::backward, Sample{});
  for (const Variant& v : grid::variants_for(p)) {
    Runner runner(grid::device(), v, p, inputs, Pass::backward);
    const Simulated one_by_one({.os_threads = 1});
    runner.run();
    const Results<float> first = runner.results();
    for (int repeat = 0; repeat < (grid::sanitized() ? 2 : 6); ++repeat) {
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

/// Every row of a tensor becomes its first one.
void repeat_first_row(HostTensor<float>& tensor, const FullProblem& p) {
  for (int j = 0; j < p.Nk; ++j) {
    for (int c = 0; c < p.d; ++c) tensor(0, 0, j, c) = tensor(0, 0, 0, c);
  }
}

TEST_CASE("chapter: what D does to dS = P o (dP - D) (7.3)") {
  const FullProblem p = causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 50, .Nk = 90, .d = 40}));
  for (const Variant& v : grid::variants_for(p)) {
    INFO(std::string(v.name));
    // V_j = v for all j: O_i = v whatever P, so dP_ij = dO_i . v = D_i, and nothing can be gained
    // by attending elsewhere: dS = 0.
    Inputs inputs = make_inputs(p, InputKind::normal, 74, Pass::backward);
    repeat_first_row(inputs.V, p);
    const Results<float> same_values = grid::run(v, p, inputs, Pass::backward);
    CHECK(largest(same_values.dQ) < 1e-5f);
    CHECK(largest(same_values.dK) < 1e-5f);
    CHECK(largest(same_values.dV) > 0.1f);
    // K_j = k for all j (exercise 1): dQ_i = scale (sum_j dS_ij) k, and each row of dS sums to
    // zero, although dS itself is not zero.
    inputs = make_inputs(p, InputKind::normal, 74, Pass::backward);
    repeat_first_row(inputs.K, p);
    const Results<float> same_keys = grid::run(v, p, inputs, Pass::backward);
    CHECK(largest(same_keys.dQ) < 1e-5f);
    CHECK(largest(same_keys.dK) > 0.1f);
  }
}

TEST_CASE("chapter: each GPU has tiles for each d") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (int d = 1; d <= 128; ++d) {
      const FullProblem p = grid::problem_of({.Nq = 1024, .Nk = 1024, .d = d});
      for (const Variant& v : grid::variants_for(p)) {
        INFO(std::string(v.name) << ", sm_" << sm << ", d=" << d);
        const std::vector<TileChoice> all = choices(v, p);
        REQUIRE(!all.empty());
        for (const TileChoice& choice : all) {
          CHECK(choice.shared_bytes <= limits.shared_bytes);
          CHECK((choice.threads == 128 || choice.threads == 256));
          CHECK(std::count_if(all.begin(), all.end(), [&](const TileChoice& c) { return c.tiles == choice.tiles; }) == 1);
        }
        const std::vector<TileChoice> forward = choices(v, p, Pass::forward),
                                      stage_06 = simt::forward_pass().tiles(p, Pass::forward, limits);
        REQUIRE(forward.size() == stage_06.size());
        for (std::size_t i = 0; i < forward.size(); ++i) CHECK(forward[i].tiles == stage_06[i].tiles);
      }
    }
  }
}

}  // namespace
}  // namespace flash
