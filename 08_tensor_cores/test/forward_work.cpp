// What chapter 08 claims of the work of the forward steps: bytes, products, bank conflicts, barriers, tiles computed twice.
#include "08_tensor_cores/forward/1_mma.cuh"
#include "08_tensor_cores/test/forward_work_model.hpp"
#include "common/attention/cost.hpp"
#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>

namespace flash {
namespace {

using grid::causal;
using grid::Simulated;
using grid::with_bias;
using namespace tensor_test;

// ---- Counts -----------------------------------------------------------------------------------------------------------------------------

TEST_CASE("cpu: HBM bytes are those of the formula (8.9)") {
  // On sm_90 the grid holds every problem to the predictions. On sm_75 tiles are smaller.
  const std::vector<FullProblem> problems{
      many_tiles(), causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 300, .Nk = 100, .d = 128})),  // two tiles of Q see nothing
      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 66, .d = 161}),
      with_bias(causal(grid::problem_of({.B = 2, .H = 2, .Hkv = 1, .Nq = 129, .Nk = 192, .d = 59})), BiasKind::matrix)};
  const Simulated turing({.target_sm = 75});
  for (const FullProblem& p : grid::counted(problems)) {
    for (const Variant& v : forward_steps(p)) grid::check_prediction(v, p, Pass::forward);
  }
}

TEST_CASE("cpu: bytes, barriers and products of every tile size are those of the visited tiles, and of those computed twice") {
  const std::vector<FullProblem> problems{
      many_tiles(),
      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 203, .d = 64}),
      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 40, .Nk = 300, .d = 111})),
      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 90, .d = 129}),
      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 40, .Nk = 125, .d = 161}),
      with_bias(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 40, .Nk = 300, .d = 32}), BiasKind::alibi)};
  for (FullProblem p : grid::counted(problems)) {
    for (const InputKind kind : {InputKind::normal, InputKind::large}) {
      p.input = kind;
      const Inputs inputs = make_inputs(p, Pass::forward);
      const Scores scores(p, inputs);
      for (const Variant& v : forward_steps(p)) {
        if (kind == InputKind::large && !may_repeat(v)) continue;  // the scores change nothing
        for (const TileChoice& choice : choices(v, p, Pass::forward)) {
          INFO(what(v, choice.tiles, p) << ", input " << to_string(kind));
          const Counters got = Runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles).count();
          const Work work = work_of(v, p, scores, choice);
          CHECK(got.tensor_core_products == static_cast<std::uint64_t>(work.products));
          if (kind == InputKind::normal) grid::check_counts(v, p, Pass::forward, choice.tiles, got);
          // Large scores do it again and again, normal ones never.
          if (is_lazy(v) && kind == InputKind::large && p.Nk > 128) CHECK(work.repeated > 0);
          if (kind == InputKind::normal && p.Nk % choice.tiles.Bc > 8 && p.bias == BiasKind::none) CHECK(work.repeated == 0);
          const bool merges = splits_keys(v) && !(is_for_hopper(v) && choice.tiles.Bc >= p.Nk);
          CHECK(got.launches == (p.d % 8 == 0 ? 1u : 5u) + merges);  // copies of Q, K, V and O
          const std::int64_t biases = predict(v, p, Pass::forward, grid::device().limits(), choice.tiles).tensors["bias"].read;
          for (const TensorTraffic& t : got.traffic) {
            if (t.tensor == "bias") CHECK(static_cast<std::int64_t>(t.read_bytes) == biases);
          }
        }
      }
    }
  }
}

// ---- Bank conflicts and barriers --------------------------------------------------------------------------------------------------------

std::uint64_t conflicts(const Variant& v, const FullProblem& p, Tiles tiles) {
  return Runner(grid::device(), v, p, make_inputs(p, Pass::forward), Pass::forward, tiles).count().bank_conflicts;
}

TEST_CASE("cpu: no access to a swizzled tile meets a bank twice") {
  std::vector<FullProblem> problems;
  for (const int d : {32, 64, 96, 128, 256}) {
    problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = d})));
    // Missing rows and columns. (O of d = 88 leaves in 11 of 12 places a row, and there meets some banks twice.)
    if (d != 96) problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 35, .Nk = 77, .d = d - 8}));
  }
  for (const FullProblem& p : grid::counted(problems)) {
    for (const Variant& v : forward_steps(p)) {
      if (v.name == std::string("mma") || (is_for_hopper(v) && p.d > 64 && p.d < 128))
        continue;  // O of two panels, not both whole
      for (const TileChoice& choice : choices(v, p, Pass::forward))
        CHECK_MESSAGE(conflicts(v, p, choice.tiles) == 0, what(v, choice.tiles, p));
    }
  }
}

/// Step 1 with its tiles for d = 64 and another padding of the rows.
template <int Pad>
Variant padded_by() {
  using Shape = tensor_cores::forward_1::ForwardShape<64, 128, 64, 2, Pad>;
  Variant v = tensor_cores::forward_1::variant;
  v.forward = [](const Attention& a) { start(Shape{}, a); };
  return v;
}

TEST_CASE("chapter: what the padding of step 1 is for") {
  if (grid::device().info().kind != Backend::cpu) return;  // only the simulator counts
  const FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = 64});
  CHECK(conflicts(padded_by<8>(), p, {128, 64}) == 0);
  CHECK(conflicts(padded_by<0>(), p, {128, 64}) > 0);
  CHECK(conflicts(padded_by<16>(), p, {128, 64}) > 0);
  const FullProblem long_one = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 1024, .Nk = 1024, .d = 64});
  if (!grid::sanitized()) CHECK(conflicts(padded_by<0>(), long_one, {128, 64}) == 777216);
}

// ---- The maximum ------------------------------------------------------------------------------------------------------------------------

/// Normal inputs, but Q = 1 in column 0 and K such that key j scores about level(j), before the bias. The other columns are a tenth.
Inputs with_levels(const FullProblem& p, const std::function<float(int)>& level) {
  Inputs inputs = make_inputs(p, Pass::forward);
  for (int h = 0; h < p.Hkv; ++h) {
    for (int j = 0; j < p.Nk; ++j) inputs.K(0, h, j, 0) = round_to(p.dtype, level(j) / p.scale);
  }
  for (int h = 0; h < p.H; ++h) {
    for (int i = 0; i < p.Nq; ++i) {
      inputs.Q(0, h, i, 0) = 1.0f;
      for (int c = 1; c < p.d; ++c) inputs.Q(0, h, i, c) = round_to(p.dtype, 0.1f * inputs.Q(0, h, i, c));
    }
  }
  return inputs;
}

struct Levels {
  const char* name;
  std::function<float(int)> level;
  bool repeats;  // lazy steps compute tiles twice
};

const std::vector<Levels> all_levels{
    {"grow by 20 a tile", [](int j) { return 20.0f * static_cast<float>(j / 64); }, false},
    {"fall by 20 a tile", [](int j) { return -20.0f * static_cast<float>(j / 64); }, true},
    {"grow by 2000 a tile", [](int j) { return 2000.0f * static_cast<float>(j / 64); }, false},
    {"fall by 2000 a tile", [](int j) { return -2000.0f * static_cast<float>(j / 64); }, true},
    {"fall by 5 a tile", [](int j) { return -5.0f * static_cast<float>(j / 64); }, true},  // only together do they not fit
    {"fall by 0.5 a tile", [](int j) { return -0.5f * static_cast<float>(j / 64); }, false},
    {"first key huge", [](int j) { return j == 0 ? 9000.0f : 0.0f; }, true},
    {"a key in the middle huge", [](int j) { return j == 150 ? 9000.0f : 0.0f; }, true},
    {"last key huge", [](int j) { return j == 299 ? 9000.0f : 0.0f; }, false},
    {"a key in the middle 6 above", [](int j) { return j == 150 ? 6.0f : 0.0f; }, false},  // e^6 < 2^10 fits
    {"last keys far below", [](int j) { return j >= 250 ? -9000.0f : 0.0f; }, true}};      // P is infinite at first

TEST_CASE("cpu: right whichever way the scores go, and computed twice where (8.7) says (long)") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const bool is_causal : {false, true}) {
      FullProblem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 100, .Nk = 300, .d = is_causal ? 40 : 16});
      p.causal = is_causal;
      p.dtype = dtype;
      if (grid::sanitized() && (is_causal || dtype == Dtype::bf16)) continue;
      for (const Levels& levels : grid::sanitized() ? std::vector{all_levels[1]} : all_levels) {
        const Inputs inputs = with_levels(p, levels.level);
        const Checker checker(p, inputs, Pass::forward, Sample{});
        const Scores scores(p, inputs);
        for (const Variant& v : forward_steps(p)) {
          if (!may_repeat(v) && (is_causal || dtype == Dtype::bf16)) continue;  // one path, whatever the scores
          const TileChoice choice = choices(v, p, Pass::forward).front();
          INFO(std::string(levels.name));
          Runner runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles);
          const Work work = work_of(v, p, scores, choice);
          CHECK(runner.count().tensor_core_products == static_cast<std::uint64_t>(work.products));
          check(checker, v, choice.tiles, p, runner);
          if (may_repeat(v) && !is_causal) CHECK((work.repeated > 0) == levels.repeats);
        }
      }
    }
  }
}

}  // namespace
}  // namespace flash
