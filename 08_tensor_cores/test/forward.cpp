// What chapter 08 claims of the results of the forward steps, and of what they take. The grid that every stage passes is in
// common/grid.
#include "08_tensor_cores/test/parts.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace flash {
namespace {

using grid::causal;
using grid::Simulated;
using grid::with_bias;
using namespace tensor_test;

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST_CASE("cpu: right when the first tiles visited see nothing") {
  FullProblem p = with_bias(grid::problem_of({.Nq = 70, .Nk = 300, .d = 16}), BiasKind::matrix);
  p.scale = 1.0f;
  Inputs inputs = make_inputs(p, Pass::forward);
  for (int i = 0; i < p.Nq; ++i) {
    for (int j = 0; j < p.Nk; ++j) {
      // Head 0: keys 60..129 alone. Head 1: rows 0..39 see one half of the keys, rows from 50 on none.
      const bool odd = i % 2 == 1;
      const bool masked[2] = {j >= 130 || j < 60, i >= 50 || (i < 40 && (j < 150) == odd)};
      for (int h = 0; h < 2; ++h) {
        if (masked[h]) inputs.bias(0, h, i, j) = -infinity;
      }
    }
  }
  const Checker checker(p, inputs, Pass::forward, Sample{});
  for (const Variant& v : forward_steps(p)) {
    for (const TileChoice& choice : choices(v, p, Pass::forward)) check(checker, v, choice.tiles, p, inputs, Pass::forward);
  }
}

TEST_CASE("cpu: a tile of Q that sees no key at all") {
  // The one barrier is that before O takes Q's place: without it results are right, and only the race detector notices.
  const FullProblem p = causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 145, .Nk = 16, .d = 30}));
  const Inputs inputs = make_inputs(p, Pass::forward);
  const Checker checker(p, inputs, Pass::forward, Sample{});
  simt::Options watching = simt::options();
  watching.watch = true;
  const simt::Simulated watched(watching);
  simt::reset_findings();
  for (const Variant& v : forward_steps(p)) {
    for (const TileChoice& choice : choices(v, p, Pass::forward)) {
      CHECK((choice.tiles.Br > 128 || choice.tiles.Br <= p.Nq - p.Nk));  // taller ones have others beside them
      check(checker, v, choice.tiles, p, inputs, Pass::forward);
      for (const simt::Race& race : simt::findings().races) FAIL_CHECK(std::string(v.name) << ": " << sentence(race));
    }
  }
}

TEST_CASE("cpu: right when a block computes one tile of Q after the other") {
  // More tiles of Q than SMs; some see no key. Blocks go round their rings several times, and wait until O has left Q's place.
  FullProblem p = causal(grid::problem_of({.H = 70, .Hkv = 35, .Nq = 150, .Nk = 70, .d = 12}));
  for (const char* name : {"scheduled", "options_hopper"}) {
    if (grid::sanitized()) continue;
    const bool windowed = name == std::string("options_hopper");
    if (windowed) p.window.left = 20;
    const Inputs inputs = make_inputs(p, Pass::forward);
    const Checker checker(p, inputs, Pass::forward, Sample{});
    const Simulated order({.order = Order::random, .seed = 7});
    check(checker, grid::variant_named(name), windowed ? Tiles{128, 128} : Tiles{64, 64}, p, inputs, Pass::forward);
  }
}

TEST_CASE("cpu: steps 2 to 4 give the bits of step 1, and no order of threads changes a bit of any step") {
  const FullProblem wide = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 203, .d = 96});
  for (const FullProblem& p : grid::counted({many_tiles(), wide})) {
    const Inputs inputs = make_inputs(p, Pass::forward);
    const Results<float> of_mma = grid::run(grid::variant_named("mma"), p, inputs, Pass::forward);
    for (const char* same : {"swizzle", "pipeline", "registers"})
      CHECK_MESSAGE(identical(of_mma, grid::run(grid::variant_named(same), p, inputs, Pass::forward)), std::string(same));
  }
  for (const FullProblem& p : grid::counted({many_tiles(), with_bias(wide, BiasKind::matrix)})) {
    const Inputs inputs = make_inputs(p, Pass::forward);
    for (const Variant& v : forward_steps(p)) {
      Runner runner(grid::device(), v, p, inputs, Pass::forward);
      runner.run();
      const Results<float> first = runner.results();
      for (std::uint64_t seed = 0; seed < (grid::sanitized() ? 1 : 2); ++seed) {
        const Simulated order({.order = seed == 0 ? Order::reverse : Order::random, .seed = seed});
        runner.run();
        CHECK_MESSAGE(identical(first, runner.results()), std::string(v.name) << ", seed " << seed);
      }
    }
  }
}

// ---- Which tiles, which GPU -----------------------------------------------------------------------------------------------------------------

TEST_CASE("cpu: right around the edges of tiles, with each choice of tiles, whatever the GPU (long)") {
  for (const int sm : {75, 80, 90}) {
    if (grid::sanitized() && sm != 90) continue;
    const Simulated gpu({.target_sm = sm});
    std::vector<FullProblem> problems{many_tiles()};
    for (const int d : {30, 64, 96, 128, 129, 161, 256}) {
      const Tiles t = choices(grid::variant_named("fitted"), grid::problem_of({.d = d}), Pass::forward).front().tiles;
      for (const int more : {-1, 1}) {
        if (more == 1 && (sm == 80 || d == 30 || d > 128)) continue;
        problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = t.Br + more, .Nk = 2 * t.Bc + more, .d = d}));
        if (sm != 80)
          problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 2 * t.Br + more, .Nk = t.Bc + more, .d = d})));
      }
    }
    for (const FullProblem& p : grid::counted(problems)) {
      const Inputs inputs = make_inputs(p, Pass::forward);
      const Checker checker(p, inputs, Pass::forward, Sample{});
      for (const Variant& v : forward_steps(p)) {
        for (const TileChoice& choice : choices(v, p, Pass::forward)) check(checker, v, choice.tiles, p, inputs, Pass::forward);
      }
    }
  }
}

TEST_CASE("chapter: each GPU has tiles for each d") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (const Variant& v : forward_steps()) {
      for (int d = 1; d <= 256; ++d) {
        const std::vector<TileChoice> all = choices(v, grid::problem_of({.d = d}), Pass::forward);
        INFO(std::string(v.name) << ", sm_" << sm << ", d=" << d);
        REQUIRE(!all.empty());
        for (const TileChoice& choice : all) {
          CHECK(choice.shared_bytes <= limits.shared_bytes);
          CHECK((choice.threads >= 64 && choice.threads <= (is_for_hopper(v) ? 640 : 256) && choice.threads % 32 == 0));
          CHECK(std::count_if(all.begin(), all.end(), [&](const TileChoice& c) { return c.tiles == choice.tiles; }) == 1);
        }
      }
    }
  }
}

TEST_CASE("chapter: the default tiles are those that were fastest on an H200") {
  const struct {
    const char* variant;
    int heads, N, d;
    bool causal;
    Tiles fastest;
  } measured[] = {
      {"scheduled", 8, 4096, 64, false, {256, 64}},         {"scheduled", 8, 2048, 64, false, {128, 128}},
      {"scheduled", 12, 2048, 64, false, {192, 96}},        {"scheduled", 2, 8192, 64, false, {128, 128}},
      {"scheduled", 256, 1024, 64, true, {256, 64}},        {"scheduled", 8, 4096, 64, true, {128, 128}},
      {"scheduled", 2, 8192, 128, true, {64, 64}},          {"scheduled", 8, 4096, 128, false, {128, 128}},
      {"scheduled", 12, 2048, 128, false, {192, 64}},       {"scheduled", 4, 8192, 128, true, {128, 128}},
      {"options_hopper", 48, 4096, 160, false, {128, 112}}, {"options_hopper", 40, 4096, 192, false, {128, 80}},
      {"lazy_maximum", 8, 4096, 64, false, {128, 64}},      {"lazy_maximum", 8, 4096, 64, true, {64, 64}},
      {"lazy_maximum", 12, 2048, 64, false, {64, 64}},      {"lazy_maximum", 64, 1024, 64, true, {128, 64}},
      {"lazy_maximum", 8, 4096, 128, true, {64, 32}},
  };
  for (const auto& m : measured) {
    FullProblem p = grid::problem_of({.H = m.heads, .Hkv = m.heads, .Nq = m.N, .Nk = m.N, .d = m.d});
    p.causal = m.causal;
    INFO(std::string(m.variant) << ", H=" << m.heads << " N=" << m.N << " d=" << m.d << std::string(m.causal ? " causal" : ""));
    const Tiles chosen = choices(grid::variant_named(m.variant), p, Pass::forward).front().tiles;
    CHECK_MESSAGE(chosen == m.fastest, chosen.Br << " x " << chosen.Bc);
  }
  // 512 queries on 4,096 keys under a mask: blocks are nearly equal, and 192 of 192 rows take two rounds, 256 of 128 rows as well.
  FullProblem p = grid::problem_of({.B = 4, .H = 16, .Hkv = 16, .Nq = 512, .Nk = 4096, .d = 128});
  p.causal = true;
  CHECK(choices(grid::variant_named("scheduled"), p, Pass::forward).front().tiles == Tiles{128, 128});
}

TEST_CASE("chapter: bf16 is refused where it does not exist, and d beyond 256 everywhere") {
  FullProblem p = grid::problem_of({.d = 64});
  for (const Variant& v : grid::variants()) {
    if (v.needs != Features::none) continue;
    for (const int sm : {75, 80, 90}) {
      if (is_for_hopper(v) && sm < 90) continue;
      const Simulated gpu({.target_sm = sm});
      const DeviceLimits limits = grid::device().limits();
      p.dtype = Dtype::fp16;
      CHECK(refusal(v, p, limits) == "");
      p.dtype = Dtype::bf16;
      const std::string refused = refusal(v, p, limits);
      if (sm >= 80) CHECK(refused == "");
      if (sm < 80) CHECK((refused.find("bf16") != std::string::npos && refused.find("7.5") != std::string::npos));
    }
    p.dtype = Dtype::fp32;
    CHECK(refusal(v, p) != "");
    p.dtype = Dtype::fp16;
    p.d = 257;
    CHECK(refusal(v, p) != "");
    p.d = 64;
  }
}

TEST_CASE("chapter: the fastest step is one that the device can run") {
  const DeviceLimits hopper{.sm = 90}, ampere{.sm = 80};
  const auto name = [&](int d, Pass pass, const DeviceLimits& limits, int Nq = 128, int Hkv = 2, bool causal = true,
                        BiasKind bias = BiasKind::none) {
    FullProblem p = grid::problem_of({.B = 600, .H = 8, .Hkv = Hkv, .Nq = Nq, .d = d});  // blocks for all SMs
    p.causal = causal;
    p.bias = bias;
    p.dtype = Dtype::fp16;
    const Variant* const fastest = fastest_variant(Backend::cpu, p, pass, limits);
    return std::string(fastest == nullptr ? "" : fastest->name);
  };
  CHECK(name(64, Pass::forward, hopper) == "scheduled");
  CHECK(name(256, Pass::forward, hopper) == "scheduled");
  CHECK(name(160, Pass::forward, hopper) == "options_hopper");
  CHECK(name(64, Pass::forward, hopper, 128, 2, true, BiasKind::alibi) == "options_hopper");
  CHECK(name(64, Pass::backward, hopper) == "early");
  CHECK(name(64, Pass::backward, hopper, 4096, /*Hkv=*/1) == "early");
  CHECK(name(128, Pass::backward, hopper) == "early");
  CHECK(name(128, Pass::backward, hopper, 4096, /*Hkv=*/1) == "ordered");
  CHECK(name(128, Pass::backward, hopper, 4097, /*Hkv=*/1) == "early");
  CHECK(name(128, Pass::backward, hopper, 4096, /*Hkv=*/1, /*causal=*/false) == "early");
  CHECK(name(64, Pass::backward, hopper, 4096, 2, true, BiasKind::alibi) == "general");
  CHECK(name(128, Pass::backward, hopper, 4096, /*Hkv=*/1, true, BiasKind::alibi) == "ordered");
  FullProblem windowed = causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 128, .d = 128}));
  windowed.dtype = Dtype::fp16;
  windowed.window.left = 64;
  CHECK(fastest_variant(Backend::cpu, windowed, Pass::backward, hopper)->name == std::string("options_early"));
  FullProblem few_blocks = grid::problem_of({.H = 64, .Hkv = 8, .Nq = 1024, .Nk = 1024, .d = 64});
  few_blocks.dtype = Dtype::fp16;
  CHECK(fastest_variant(Backend::cpu, few_blocks, Pass::backward, hopper)->name == std::string("divided"));
  few_blocks.d = 128;
  CHECK(fastest_variant(Backend::cpu, few_blocks, Pass::backward, hopper)->name == std::string("divided"));
  CHECK(fastest_variant(Backend::cpu, few_blocks, Pass::forward, hopper)->name == std::string("scheduled"));
  CHECK(name(160, Pass::backward, hopper, 128, /*Hkv=*/1) == "relay");
  CHECK(name(160, Pass::backward, hopper) == "relay");
  CHECK(name(64, Pass::forward, ampere) == "");
  CHECK(name(160, Pass::backward, ampere) == "");
}

TEST_CASE("chapter: the TMA is refused before Hopper, wgmma before and after it") {
  for (const Variant& v : grid::variants()) {
    if (!is_for_hopper(v)) continue;
    FullProblem p = grid::problem_of({.d = 64});
    if (v.needs == Features::softcap) p.softcap = 2.0f;
    for (const int sm : {75, 80, 89, 90, 100, 120}) {
      INFO(std::string(v.name) << ", sm_" << sm);
      const bool runs = sm == 90 || (sm > 90 && v.name == std::string("tma"));
      const std::string refused = refusal(v, p, DeviceLimits{.sm = sm});
      CHECK(refused.empty() == runs);
      if (!runs) CHECK(refused.find("it is " + std::to_string(sm / 10) + "." + std::to_string(sm % 10)) != std::string::npos);
    }
  }
}

TEST_CASE("chapter: problems that need a larger grid than CUDA has are refused") {
  for (const Variant& v : forward_steps()) {
    if (splits_keys(v)) continue;  // test/decode.cpp
    FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 1 << 30, .Nk = 64, .d = 64});
    CHECK(refusal(v, p) == "");
    p.H = p.Hkv = 1 << 7;  // 2^25 tiles of 32 queries each
    CHECK(refusal(v, p) != "");
    p.H = p.Hkv = 63;
    CHECK(refusal(v, p) == "");
    std::swap(p.Nq, p.Nk);
    p.H = p.Hkv = 1 << 7;
    CHECK(refusal(v, p) == "");
  }
}

}  // namespace
}  // namespace flash
