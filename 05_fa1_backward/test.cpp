// What chapter 05 claims. The grid that every stage passes is in common/grid.
#include "05_fa1_backward/predicted.hpp"
#include "05_fa1_backward/tiles.cuh"
#include "common/attention/cost.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/cpu/options.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace flash::fa1_backward {
namespace {

using grid::causal;
using grid::Simulated;

/// Several tiles along both axes and two query heads to a key/value head; on the smallest GPU the tiles are 32 x 8.
FullProblem many_tiles() { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 70, .Nk = 61, .d = 100})); }

TEST_CASE("chapter: dS is the Jacobian of the softmax times dP (5.3)") {
  // With K = V = 1 (the identity) and scale = 1: S = Q, dP = dO and dQ = dS. The Jacobian of row i is diag(P_i) - P_i^T P_i.
  constexpr int N = 24;
  FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 9, .Nk = N, .d = N});
  p.scale = 1.0f;
  Inputs inputs = make_inputs(p, Pass::backward);
  for (int j = 0; j < N; ++j) {
    for (int c = 0; c < N; ++c) inputs.K(0, 0, j, c) = inputs.V(0, 0, j, c) = j == c ? 1.0f : 0.0f;
  }
  const Results<float> got = grid::run(grid::variant_named("grouped"), p, inputs, Pass::backward);
  for (int i = 0; i < p.Nq; ++i) {
    double P[N], l = 0;
    for (int j = 0; j < N; ++j) l += std::exp(static_cast<double>(inputs.Q(0, 0, i, j)));
    for (int j = 0; j < N; ++j) P[j] = std::exp(static_cast<double>(inputs.Q(0, 0, i, j))) / l;
    for (int j = 0; j < N; ++j) {
      double dS = 0;
      for (int k = 0; k < N; ++k) dS += ((j == k ? P[j] : 0.0) - P[j] * P[k]) * static_cast<double>(inputs.dO(0, 0, i, k));
      CHECK(std::abs(static_cast<double>(got.dQ(0, 0, i, j)) - dS) < 1e-6);
    }
  }
}

TEST_CASE("chapter: tile sizes follow d and the shared memory (5.8)") {
  struct Expected {
    int sm, d;
    Tiles tiles;
  };
  for (const Expected& expected :
       {Expected{90, 32, {128, 64}}, Expected{90, 64, {128, 64}}, Expected{90, 96, {96, 48}}, Expected{90, 128, {64, 32}},
        Expected{80, 32, {128, 64}}, Expected{80, 64, {96, 48}}, Expected{80, 128, {64, 32}}, Expected{75, 32, {64, 32}},
        Expected{75, 64, {32, 16}}, Expected{75, 96, {32, 16}}, Expected{75, 128, {32, 8}}}) {
    const Simulated gpu({.target_sm = expected.sm});
    const Tiles got = tiles_of(grid::problem_of({.Nq = 1024, .Nk = 1024, .d = expected.d}), grid::device().limits());
    CHECK_MESSAGE(got == expected.tiles, "sm_" << expected.sm << ", d=" << expected.d << ": " << got.Br << " x " << got.Bc);
  }
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (int d = 1; d <= 128; ++d) {
      for (const int N : {1, 16, 17, 70, 5000, 1 << 30}) {
        const Tiles got = tiles_of(grid::problem_of({.Nq = N, .Nk = N, .d = d}), limits);
        CHECK(4 * static_cast<std::size_t>(shared_floats(got, width_of(d))) <= limits.shared_bytes);
        CHECK((got.Br >= 2 * got.Bc && got.Br % 32 == 0 && got.Br <= MAX_Br));
        CHECK((got.Bc % fa1_forward::GROUP == 0 && got.Bc <= (N + 15) / 16 * 16));
      }
    }
  }
}

TEST_CASE("cpu: right around the edges of its tiles, whatever the GPU (long)") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    std::vector<FullProblem> problems{many_tiles()};
    for (const int d : {111, 128}) {
      const Tiles tiles = tiles_of(grid::problem_of({.Nq = 1024, .Nk = 1024, .d = d}), grid::device().limits());
      for (const int more : {-1, 0, 1}) {
        problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = tiles.Br + more, .Nk = 2 * tiles.Bc + more, .d = d}));
        problems.push_back(causal(problems.back()));
        problems.push_back(
            causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 2 * tiles.Br + more, .Nk = tiles.Bc + more, .d = d})));
      }
    }
    grid::check_variants_on(grid::counted(problems));
  }
}

TEST_CASE("cpu: the order of threads changes no bit") {
  const Simulated gpu({.target_sm = 75});
  const FullProblem p = many_tiles();
  const Inputs inputs = make_inputs(p, Pass::backward);
  for (const Variant& v : grid::variants()) {
    const Results<float> first = grid::run(v, p, inputs, Pass::backward);
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Simulated order({.order = seed == 0 ? Order::reverse : Order::random, .seed = seed, .target_sm = 75});
      CHECK_MESSAGE(identical(first, grid::run(v, p, inputs, Pass::backward)), v.name);
    }
  }
}

TEST_CASE("cpu: bytes are those of the formula (5.9), and sectors and barriers as predicted") {
  std::vector<FullProblem> problems{many_tiles(), grid::problem_of({.H = 1, .Hkv = 1, .Nq = 113, .Nk = 203, .d = 64}),
                                    causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 70, .Nk = 200, .d = 59})),
                                    causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 217, .Nk = 128, .d = 128})),
                                    causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 104, .Nk = 200, .d = 40}))};
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const FullProblem& p : grid::counted(problems)) {
      CHECK(predicted_tiles(p, grid::device().limits()) == tiles_of(p, grid::device().limits()));
      if (sm == 90) continue;  // there the grid holds every problem to the predictions
      for (const Variant& v : grid::variants()) grid::check_prediction(v, p, Pass::backward);
      grid::check_prediction(grid::variant_named("grouped"), p, Pass::forward);
    }
  }
}

TEST_CASE("cpu: rows, columns and broadcasts of shared memory meet no bank twice") {
  const FullProblem p = causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 130, .Nk = 66, .d = 64}));  // tiles of 128 x 64
  Runner runner(grid::device(), grid::variant_named("grouped"), p, make_inputs(p, Pass::backward), Pass::backward);
  CHECK(runner.count().bank_conflicts == 0);
}

}  // namespace
}  // namespace flash::fa1_backward
