// What chapter 04 claims. The grid that every stage passes is in common/grid.
#include "04_fa1_forward/4_tiled.cuh"
#include "04_fa1_forward/predicted.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/cpu/options.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <random>

namespace flash::fa1_forward {
namespace {

using namespace step_4;
using grid::causal;
using grid::Simulated;

/// Several tiles along both axes, all of them on the smallest GPU, whose tiles for d > 96 are 32 x 24.
FullProblem many_tiles() { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 70, .Nk = 61, .d = 100})); }

TEST_CASE("chapter: tile sizes follow d and the shared memory (4.6)") {
  struct Expected {
    int sm, d;
    Tiles tiles;
  };
  for (const Expected& e : {Expected{90, 32, {256, 400}}, Expected{90, 64, {192, 208}}, Expected{90, 96, {128, 144}},
                            Expected{90, 128, {96, 104}}, Expected{80, 64, {128, 152}}, Expected{80, 128, {64, 72}},
                            Expected{75, 32, {96, 112}}, Expected{75, 64, {32, 56}}, Expected{75, 128, {32, 24}}}) {
    const Simulated gpu({.target_sm = e.sm});
    const Tiles got = tiles_of(grid::problem_of({.Nq = 1024, .Nk = 1024, .d = e.d}), grid::device().limits());
    CHECK_MESSAGE(got == e.tiles, "sm_" << e.sm << ", d=" << e.d << ": " << got.Br << " x " << got.Bc);
  }
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (int d = 1; d <= 128; ++d) {
      for (const int N : {1, 31, 33, 70, 5000}) {
        const Tiles got = tiles_of(grid::problem_of({.Nq = N, .Nk = N, .d = d}), limits);
        CHECK(4 * shared_floats(got, width_of(d)) <= limits.shared_bytes);
        CHECK((got.Br >= 32 && got.Br % 32 == 0 && got.Br <= 256 && got.Br < N + 32));
        CHECK((got.Bc >= 8 && got.Bc % 8 == 0 && got.Bc < N + 8));
      }
    }
  }
}

TEST_CASE("cpu: right around the edges of its tiles, whatever the GPU (long)") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const int d : {111, 128}) {
      const Tiles tiles = tiles_of(grid::problem_of({.Nq = 1024, .Nk = 1024, .d = d}), grid::device().limits());
      std::vector<FullProblem> problems{many_tiles()};
      for (const int more : {-1, 0, 1}) {
        problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = tiles.Br + more, .Nk = 2 * tiles.Bc + more, .d = d}));
        problems.push_back(causal(problems.back()));
        problems.push_back(
            causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 2 * tiles.Br + more, .Nk = tiles.Bc + more, .d = d})));
      }
      grid::check_variants_on(grid::counted(problems));
    }
  }
}

TEST_CASE("chapter: merged tiles give the softmax of the whole row (4.2) to (4.4)") {
  constexpr int Width = 32, parts = 5;
  std::mt19937_64 bits(41);
  const auto random = [&](double largest) { return largest * (2.0 * static_cast<double>(bits() >> 11) * 0x1p-53 - 1.0); };
  for (int trial = 0; trial < 50; ++trial) {
    alignas(16) std::array<float, Width> O{};
    const SharedMatrix<float> O_row{O.data(), 1, Width, Width};
    RowStats row{-INFINITY, 0.0f};
    std::vector<double> scores;
    std::vector<std::array<float, Width>> values;
    for (int part = 0; part < parts; ++part) {
      RowStats tile{-INFINITY, 0.0f};
      float4 PV[Width / 4] = {};
      for (std::uint64_t groups = bits() % 4; groups > 0; --groups) {  // a tile may be empty
        float S[GROUP];
        alignas(16) std::array<float, GROUP * Width> V;
        for (float& v : V) v = static_cast<float>(random(1));
        for (int g = 0; g < GROUP; ++g) {
          S[g] = bits() % 3 == 0 ? -INFINITY : static_cast<float>(random(50));
          scores.push_back(static_cast<double>(S[g]));
          std::copy_n(V.begin() + g * Width, Width, values.emplace_back().begin());
        }
        accumulate<Width>(tile, PV, S, SharedMatrix<float>{V.data(), GROUP, Width, Width}, 0);
      }
      const RowStats merged = merge(row, tile);
      merge_output<Width>(O_row, 0, row, tile, merged, PV);
      row = merged;
    }
    double m = -INFINITY, l = 0;
    for (const double s : scores) m = std::max(m, s);
    for (const double s : scores) l += s == -INFINITY ? 0.0 : std::exp(s - m);
    CHECK(static_cast<double>(row.m) == m);
    CHECK(static_cast<double>(row.l) == doctest::Approx(l).epsilon(1e-5));
    for (std::size_t c = 0; c < Width; ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < scores.size(); ++j) {
        if (scores[j] != -INFINITY) sum += std::exp(scores[j] - m) / l * static_cast<double>(values[j][c]);
      }
      CHECK(std::abs(static_cast<double>(O[c]) - sum) <= 1e-5);
    }
  }
}

TEST_CASE("cpu: the order of threads changes no bit") {
  const Simulated gpu({.target_sm = 75});
  const FullProblem p = many_tiles();
  const Inputs inputs = make_inputs(p, Pass::forward);
  const Variant& v = grid::variant_named("tiled");
  const Results<float> first = grid::run(v, p, inputs, Pass::forward);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Simulated order({.order = seed == 0 ? Order::reverse : Order::random, .seed = seed, .target_sm = 75});
    CHECK(identical(first, grid::run(v, p, inputs, Pass::forward)));
  }
}

TEST_CASE("cpu: bytes are those of the formula (4.7), and sectors and barriers as predicted") {
  std::vector<FullProblem> problems{many_tiles(), grid::problem_of({.Nq = 113, .Nk = 203, .d = 64}),
                                    causal(grid::problem_of({.B = 2, .H = 4, .Hkv = 2, .Nq = 129, .Nk = 300, .d = 59})),
                                    causal(grid::problem_of({.Nq = 217, .Nk = 128, .d = 128})),
                                    causal(grid::problem_of({.B = 2, .Nq = 104, .Nk = 200, .d = 40}))};
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const FullProblem& p : grid::counted(problems)) {
      CHECK(predicted_tiles(p, grid::device().limits()) == tiles_of(p, grid::device().limits()));
      for (const Variant& v : grid::variants_for(p)) grid::check_prediction(v, p, Pass::forward);
    }
  }
}

TEST_CASE("cpu: reading rows of shared memory meets no bank twice") {
  const FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 64, .Nk = 40, .d = 64});
  Runner runner(grid::device(), grid::variant_named("tiled"), p, make_inputs(p, Pass::forward), Pass::forward);
  CHECK(runner.count().bank_conflicts == 0);
}

}  // namespace
}  // namespace flash::fa1_forward
