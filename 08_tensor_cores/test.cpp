// What chapter 08 claims of the forward steps. The grid that every stage passes is in common/testing/grid.
#include "08_tensor_cores/1_mma.cuh"
#include "common/attention/float16.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/reference/reference.hpp"
#include "common/simt/options.hpp"
#include "common/testing/grid/problems.hpp"
#include "common/testing/grid/simulated.hpp"
#include "common/testing/grid/support.hpp"
#include "common/testing/grid/traffic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace flash {
namespace {

using grid::causal;
using grid::scaled;
using grid::Simulated;
using grid::with_bias;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Several tiles along both axes, the first 39 queries see no key, and two query heads share a key/value head.
Problem many_tiles() { return causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 174, .Nk = 135, .d = 40})); }

/// Steps 1 to 4.
std::vector<Variant> forward_steps() {
  std::vector<Variant> steps;
  for (const Variant& v : grid::variants()) {
    if (v.backward == nullptr) steps.push_back(v);
  }
  return steps;
}

std::vector<TileChoice> choices(const Variant& v, const Problem& p) {
  return v.tiles(p, Pass::forward, grid::device().limits());
}

/// "tuned, tiles 128 x 64 on B=1 ...", for messages.
std::string what(const Variant& v, const TileChoice& t, const Problem& p) {
  return std::string(v.name) + ", tiles " + std::to_string(t.tiles.Br) + " x " + std::to_string(t.tiles.Bc) + " on " +
         describe(p);
}

/// Runs a step with those tiles and reports what is wrong.
void check(const Checker& checker, const Variant& v, const TileChoice& choice, const Problem& p, const Inputs& inputs) {
  Runner runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles);
  runner.run();
  const std::string failed = grid::failures(checker.check(runner.results()));
  CHECK_MESSAGE(failed.empty(), what(v, choice, p) << "\n" << failed);
}

// ---- A model of the steps: what they visit, and what step 4 does twice ------------------------------------------------------------------

int width_of(const Problem& p) { return tensor_cores::width_of(p.d); }

/// What a step does, of all batches and heads.
struct Work {
  std::int64_t products = 0;     // multiply-adds
  std::int64_t tiles = 0;        // pairs of a tile of Q and a tile of K of which any pair is visible
  std::int64_t query_tiles = 0;  // tiles of Q of which any query sees a key
  std::int64_t queries = 0;      // in those
  std::int64_t keys = 0;         // rows of the visited tiles of K
  std::int64_t biases = 0;       // looked up
  std::int64_t repeated = 0;     // tiles that a warp computes twice
};

/// Scaled and biased score, masked. Rows beyond the last query have Q = 0, and no bias but ALiBi.
class Scores {
 public:
  Scores(const Problem& p, const Inputs& inputs, int b, int h) : p_(p), inputs_(inputs), b_(b), h_(h) {}

  double operator()(int i, int j) const {
    if (j >= p_.visible_keys(i)) return -infinity;
    double dot = 0;
    for (int c = 0; c < p_.d && i < p_.Nq; ++c) {
      dot += double{inputs_.Q(b_, h_, i, c)} * double{inputs_.K(b_, p_.kv_head(h_), j, c)};
    }
    double bias = 0;
    if (p_.bias == BiasKind::alibi) {
      bias = -double{inputs_.bias(b_, h_, 0, 0)} * std::abs(i + p_.Nk - p_.Nq - j);
    } else if (p_.bias != BiasKind::none && i < p_.Nq) {
      bias = double{inputs_.bias(b_, h_, i, j)};
    }
    return dot * double{p_.scale} + bias;
  }

 private:
  const Problem& p_;
  const Inputs& inputs_;
  int b_, h_;
};

/// Step 4's rule (8.7) for the rows of a warp: they keep m until a lane's part of a row of P sums to more than 2^10.
class Maximum {
 public:
  explicit Maximum(int rows) : m_(static_cast<std::size_t>(rows), -infinity) {}

  /// Visits the tile S [rows][keys]. Is it computed twice?
  bool visit(const std::vector<std::vector<double>>& S) {
    const bool known_before = known_;
    if (!known_) raise(S);
    if (fits(S)) return false;
    CHECK(known_before);  // never three times: the true maximum always fits
    raise(S);
    CHECK(fits(S));
    return true;
  }

 private:
  void raise(const std::vector<std::vector<double>>& S) {
    known_ = true;
    for (std::size_t r = 0; r < S.size(); ++r) {
      for (const double score : S[r]) m_[r] = std::max(m_[r], score);
      known_ = known_ && m_[r] != -infinity;
    }
  }

  bool fits(const std::vector<std::vector<double>>& S) const {
    for (std::size_t r = 0; r < S.size(); ++r) {
      double sums[4] = {};  // of the lanes of a quad
      for (std::size_t j = 0; j < S[r].size(); ++j) sums[j % 8 / 2] += std::exp(S[r][j] - (m_[r] == -infinity ? 0.0 : m_[r]));
      for (const double sum : sums) {
        if (sum > 1024.0) return false;
      }
    }
    return true;
  }

  std::vector<double> m_;
  bool known_ = false;
};

/// Adds the work of a tile of Q of one head, which begins at row0.
void add_work_of_tile(Work& work, const Problem& p, const Scores& score, int row0, const TileChoice& choice, bool step_4) {
  const auto [Br, Bc] = choice.tiles;
  const int warps = choice.threads / 32, rows = Br / warps;
  const int seen = p.visible_keys(std::min(row0 + Br, p.Nq) - 1), Tc = (seen + Bc - 1) / Bc;
  std::vector<Maximum> maxima(static_cast<std::size_t>(warps), Maximum(rows));
  for (int j = Tc - 1; j >= 0; --j) {
    const int keys = std::min(Bc, p.Nk - j * Bc);
    ++work.tiles;
    work.keys += keys;
    for (int warp = 0; warp < warps; ++warp) {
      const int first = row0 + warp * rows;
      bool twice = false;
      if (step_4) {
        std::vector<std::vector<double>> S(static_cast<std::size_t>(rows));
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < Bc; ++c) S[static_cast<std::size_t>(r)].push_back(score(first + r, j * Bc + c));
        }
        twice = maxima[static_cast<std::size_t>(warp)].visit(S);
      }
      work.repeated += twice;
      work.products += std::int64_t{twice ? 3 : 2} * rows * Bc * width_of(p);
      const std::int64_t pairs = std::int64_t{std::clamp(p.Nq - first, 0, rows)} * keys;
      if (p.bias != BiasKind::none) work.biases += (twice ? 2 : 1) * (p.bias == BiasKind::alibi ? 32 : pairs);
    }
  }
  if (Tc > 0) {
    ++work.query_tiles;
    work.queries += std::min(Br, p.Nq - row0);
  }
}

Work work_of(const Variant& v, const Problem& p, const Inputs& inputs, const TileChoice& choice) {
  Work work;
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) {
      for (int row0 = 0; row0 < p.Nq; row0 += choice.tiles.Br) {
        add_work_of_tile(work, p, Scores(p, inputs, b, h), row0, choice, v.name == std::string("tuned"));
      }
    }
  }
  return work;
}

// ---- Counts -----------------------------------------------------------------------------------------------------------------------------

/// (8.8), (8.10)  The elements that a step moves with its default tiles. Padded copies are read and written in whole chunks.
grid::Prediction predicted(const Variant& v, const Problem& p, const Inputs& inputs) {
  const Work work = work_of(v, p, inputs, choices(v, p).front());
  const std::int64_t heads = p.B * p.H, kv_heads = p.B * p.Hkv, d = p.d, chunks = (d + 7) / 8 * 8;
  const std::int64_t queries = heads * p.Nq, keys = kv_heads * p.Nk;
  grid::Prediction elements{{"O", {0, queries * d}}, {"L", {0, queries}}, {"bias", {work.biases, 0}}};
  if (chunks == d) {
    elements["Q"] = {work.queries * d, 0};
    elements["K"] = elements["V"] = {work.keys * d, 0};
  } else {
    elements["Q"] = {queries * d, 0};
    elements["K"] = elements["V"] = {keys * d, 0};
    elements["Q_padded"] = {work.queries * chunks, queries * chunks};
    elements["K_padded"] = elements["V_padded"] = {work.keys * chunks, keys * chunks};
  }
  return elements;
}

TEST_CASE("cpu: HBM bytes are those of the formula (8.8)") {
  const std::vector<Problem> problems{
      many_tiles(),
      grid::problem_of({.Nq = 113, .Nk = 203, .d = 64}),
      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 300, .Nk = 100, .d = 128})),  // two tiles of Q see nothing
      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 217, .Nk = 128, .d = 96})),
      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 66, .d = 161}),
      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 150, .Nk = 33, .d = 1})),
      with_bias(causal(grid::problem_of({.B = 2, .H = 2, .Hkv = 1, .Nq = 129, .Nk = 192, .d = 59})), BiasKind::matrix),
      with_bias(grid::problem_of({.H = 3, .Hkv = 1, .Nq = 150, .Nk = 170, .d = 111}), BiasKind::vector),
      with_bias(grid::problem_of({.H = 4, .Hkv = 2, .Nq = 70, .Nk = 300, .d = 16}), BiasKind::alibi)};
  for (const int sm : {75, 90}) {
    const Simulated gpu({.target_sm = sm});
    for (const Problem& p : grid::counted(problems)) {
      const Inputs inputs = make_inputs(p, InputKind::normal, /*seed=*/1, Pass::forward);  // those of check_traffic()
      for (const Variant& v : forward_steps()) grid::check_traffic(v, p, Pass::forward, predicted(v, p, inputs));
    }
  }
}

TEST_CASE("cpu: products are those of the visited tiles, and of those that step 4 repeats") {
  const std::vector<Problem> problems{many_tiles(), grid::problem_of({.Nq = 150, .Nk = 203, .d = 64}),
                                      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 90, .Nk = 300, .d = 111})),
                                      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 90, .d = 129}),
                                      with_bias(grid::problem_of({.Nq = 70, .Nk = 300, .d = 32}), BiasKind::alibi)};
  for (const Problem& p : grid::counted(problems)) {
    for (const InputKind kind : {InputKind::normal, InputKind::large}) {
      const Inputs inputs = make_inputs(p, kind, 81, Pass::forward);
      for (const Variant& v : forward_steps()) {
        for (const TileChoice& choice : choices(v, p)) {
          INFO(what(v, choice, p) << ", input " << to_string(kind));
          const Counters got = Runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles).count();
          const Work work = work_of(v, p, inputs, choice);
          CHECK(got.tensor_core_products == static_cast<std::uint64_t>(work.products));
          // Large scores do it again and again; ALiBi, where keys right of the diagonal grow on the way; normal ones never.
          if (v.name == std::string("tuned") && kind == InputKind::large && p.Nk > 128) CHECK(work.repeated > 0);
          if (kind == InputKind::normal && p.Nk % choice.tiles.Bc > 8 && p.bias == BiasKind::none) CHECK(work.repeated == 0);
          CHECK(got.launches == (p.d % 8 == 0 ? 1 : 4));
        }
      }
    }
  }
}

// ---- Bank conflicts and barriers --------------------------------------------------------------------------------------------------------

std::uint64_t conflicts(const Variant& v, const Problem& p, Tiles tiles) {
  return Runner(grid::device(), v, p, make_inputs(p, InputKind::normal, 1, Pass::forward), Pass::forward, tiles)
      .count()
      .bank_conflicts;
}

TEST_CASE("cpu: no access to a swizzled tile meets a bank twice") {
  std::vector<Problem> problems;
  for (const int d : {32, 64, 96, 128, 256}) {
    problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = d})));
    // Missing rows and columns. (O of d = 88 leaves in 11 of 12 places a row, and there meets some banks twice.)
    if (d != 96) problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 35, .Nk = 77, .d = d - 8}));
  }
  for (const Problem& p : grid::counted(problems)) {
    for (const Variant& v : forward_steps()) {
      if (v.name == std::string("mma")) continue;
      for (const TileChoice& choice : choices(v, p)) CHECK_MESSAGE(conflicts(v, p, choice.tiles) == 0, what(v, choice, p));
    }
  }
}

/// Step 1 with its tiles for d = 64 and another padding of the rows.
template <int Pad>
Variant padded_by() {
  using Shape = tensor_cores::Shape<64, 128, 64, 2, 2, Pad>;
  Variant v = tensor_cores::variant;
  v.forward = [](const Attention& a) { tensor_cores::start_forward<__half, Shape>(a); };
  return v;
}

TEST_CASE("chapter: what the padding of step 1 is for") {
  if (grid::device().info().kind != Backend::cpu) return;  // only the simulator counts
  const Problem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 128, .Nk = 128, .d = 64});
  CHECK(conflicts(padded_by<8>(), p, {128, 64}) == 0);
  CHECK(conflicts(padded_by<0>(), p, {128, 64}) > 0);
  CHECK(conflicts(padded_by<16>(), p, {128, 64}) > 0);
  const Problem long_one = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 1024, .Nk = 1024, .d = 64});
  if (!grid::sanitized()) CHECK(conflicts(padded_by<0>(), long_one, {128, 64}) == 777216);
}

TEST_CASE("cpu: barriers: two for each tile without, one with two stages") {
  for (const Problem& p : grid::counted({many_tiles(), grid::problem_of({.Nq = 100, .Nk = 203, .d = 128})})) {
    const Inputs inputs = make_inputs(p, InputKind::normal, 82, Pass::forward);
    for (const Variant& v : forward_steps()) {
      for (const TileChoice& choice : choices(v, p)) {
        INFO(what(v, choice, p));
        const std::string name = v.name;
        const Work work = work_of(v, p, inputs, choice);
        const auto got =
            static_cast<std::int64_t>(Runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles).count().barriers);
        if (name == "mma" || name == "swizzle") CHECK(got == 2 * work.tiles - work.query_tiles);
        if (name == "pipeline") CHECK(got == work.tiles);
        if (name == "tuned") CHECK(got >= work.tiles);  // one more for each tile of Q where Q stays in registers
      }
    }
  }
}

// ---- The maximum ------------------------------------------------------------------------------------------------------------------------

/// Normal inputs, but Q = 1 in column 0 and K such that key j scores about level(j), before the bias. The other columns are a tenth.
Inputs with_levels(const Problem& p, const std::function<float(int)>& level) {
  Inputs inputs = make_inputs(p, InputKind::normal, 83, Pass::forward);
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
  bool repeats;  // step 4 computes tiles twice
};

const std::vector<Levels> all_levels{
    {"grow by 20 a tile", [](int j) { return 20.0f * static_cast<float>(j / 64); }, false},
    {"fall by 20 a tile", [](int j) { return -20.0f * static_cast<float>(j / 64); }, true},
    {"grow by 2000 a tile", [](int j) { return 2000.0f * static_cast<float>(j / 64); }, false},
    {"fall by 2000 a tile", [](int j) { return -2000.0f * static_cast<float>(j / 64); }, true},
    {"fall by 5 a tile", [](int j) { return -5.0f * static_cast<float>(j / 64); }, true},  // only together do they not fit
    {"fall by 1 a tile", [](int j) { return -1.0f * static_cast<float>(j / 64); }, false},
    {"first key huge", [](int j) { return j == 0 ? 9000.0f : 0.0f; }, true},
    {"a key in the middle huge", [](int j) { return j == 150 ? 9000.0f : 0.0f; }, true},
    {"last key huge", [](int j) { return j == 299 ? 9000.0f : 0.0f; }, false},
    {"a key in the middle 6 above", [](int j) { return j == 150 ? 6.0f : 0.0f; }, false},  // e^6 < 2^10 fits
    {"last keys far below", [](int j) { return j >= 250 ? -9000.0f : 0.0f; }, true}};      // P is infinite at first

TEST_CASE("cpu: right whatever way the scores go, and repeated where (8.7) says") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const bool is_causal : {false, true}) {
      Problem p = grid::problem_of({.H = 2, .Hkv = 1, .Nq = 100, .Nk = 300, .d = is_causal ? 40 : 16});
      p.causal = is_causal;
      p.dtype = dtype;
      if (grid::sanitized() && (is_causal || dtype == Dtype::bf16)) continue;
      for (const Levels& levels : all_levels) {
        const Inputs inputs = with_levels(p, levels.level);
        const Checker checker(p, inputs, Pass::forward, Sample{});
        for (const Variant& v : forward_steps()) {
          const TileChoice choice = choices(v, p).front();
          INFO(std::string(levels.name));
          check(checker, v, choice, p, inputs);
          if (grid::sanitized()) continue;
          const Work work = work_of(v, p, inputs, choice);
          Runner runner(grid::device(), v, p, inputs, Pass::forward, choice.tiles);
          CHECK(runner.count().tensor_core_products == static_cast<std::uint64_t>(work.products));
          if (v.name == std::string("tuned") && !is_causal) CHECK((work.repeated > 0) == levels.repeats);
        }
      }
    }
  }
}

TEST_CASE("cpu: right when the tiles that are visited first see nothing") {
  Problem p = with_bias(grid::problem_of({.Nq = 70, .Nk = 300, .d = 16}), BiasKind::matrix);
  p.scale = 1.0f;
  Inputs inputs = make_inputs(p, InputKind::normal, 84, Pass::forward);
  for (int i = 0; i < p.Nq; ++i) {
    for (int j = 0; j < p.Nk; ++j) {
      // Head 0: no key from 130 on, none before 60. Head 1: rows 0..39 each lack one half of the keys, all rows from 50 on everything.
      const bool odd = i % 2 == 1;
      const bool masked[2] = {j >= 130 || j < 60, i >= 50 || (i < 40 && (j < 150) == odd)};
      for (int h = 0; h < 2; ++h) {
        if (masked[h]) inputs.bias(0, h, i, j) = -infinity;
      }
    }
  }
  const Checker checker(p, inputs, Pass::forward, Sample{});
  for (const Variant& v : forward_steps()) {
    for (const TileChoice& choice : choices(v, p)) check(checker, v, choice, p, inputs);
  }
}

TEST_CASE("cpu: a tile of Q that sees no key at all") {
  // No tile of K brings a barrier; where O takes Q's place, only ThreadSanitizer sees that one is missing. Hence the one small problem.
  const Problem p = causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 145, .Nk = 16, .d = 30}));
  const Inputs inputs = make_inputs(p, InputKind::normal, 89, Pass::forward);
  const Checker checker(p, inputs, Pass::forward, Sample{});
  for (const Variant& v : forward_steps()) {
    for (const TileChoice& choice : choices(v, p)) {
      CHECK((v.name == std::string("tuned") || choice.tiles.Br <= p.Nq - p.Nk));
      check(checker, v, choice, p, inputs);
    }
  }
}

TEST_CASE("cpu: right with a scale that is zero, negative, tiny or large") {
  for (const float scale : {0.0f, -0.0f, -0.3f, -4.0f, 1e-30f, 1e-42f, 8.0f}) {
    const std::vector<Problem> problems{
        scaled(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 203, .d = 32}), scale),
        scaled(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 130, .Nk = 100, .d = 59})), scale),
        scaled(with_bias(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 33, .Nk = 203, .d = 32}), BiasKind::matrix), scale)};
    for (const Problem& p : grid::counted(problems)) {
      const Inputs inputs = make_inputs(p, InputKind::normal, 85, Pass::forward);
      const Checker checker(p, inputs, Pass::forward, Sample{});
      for (const Variant& v : forward_steps()) check(checker, v, choices(v, p).front(), p, inputs);
    }
  }
}

// ---- Numbers ----------------------------------------------------------------------------------------------------------------------------

TEST_CASE("cpu: L within 1e-3, O rounded as its type rounds") {
  for (const Problem& p : grid::counted({grid::problem_of({.Nq = 70, .Nk = 512, .d = 64}),
                                         causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 257, .Nk = 257, .d = 128})),
                                         grid::problem_of({.H = 1, .Hkv = 1, .Nq = 40, .Nk = 257, .d = 256}),
                                         with_bias(grid::problem_of({.Nq = 70, .Nk = 200, .d = 32}), BiasKind::alibi),
                                         with_bias(grid::problem_of({.Nq = 70, .Nk = 200, .d = 32}), BiasKind::matrix)})) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      Problem typed = p;
      typed.dtype = dtype;
      const Inputs inputs = make_inputs(typed, InputKind::normal, 86, Pass::forward);
      const Checker checker(typed, inputs, Pass::forward, Sample{});
      const double unit = dtype == Dtype::fp16 ? std::exp2(-11) : std::exp2(-8);  // (8.18): u, of P and of O
      for (const Variant& v : forward_steps()) {
        INFO(std::string(v.name) << " on " << describe(typed));
        const CheckReport report = checker.check(grid::run(v, typed, inputs, Pass::forward));
        CHECK(report.passed);
        for (const TensorCheck& tensor : report.tensors) {
          if (tensor.tensor == "lse") CHECK(tensor.max_abs <= 1e-3);
          if (tensor.tensor == "o") CHECK((tensor.rel_l2 > 0.1 * unit && tensor.rel_l2 < 1.2 * unit));
        }
      }
    }
  }
}

TEST_CASE("cpu: step 2 gives the bits of step 1, and the order of threads changes none of any") {
  for (const Problem& p :
       grid::counted({many_tiles(), with_bias(grid::problem_of({.Nq = 70, .Nk = 203, .d = 96}), BiasKind::matrix)})) {
    const Inputs inputs = make_inputs(p, InputKind::normal, 87, Pass::forward);
    CHECK(grid::identical(grid::run(grid::variant_named("mma"), p, inputs, Pass::forward),
                          grid::run(grid::variant_named("swizzle"), p, inputs, Pass::forward)));
    for (const Variant& v : forward_steps()) {
      Runner runner(grid::device(), v, p, inputs, Pass::forward);
      runner.run();
      const Results<float> first = runner.results();
      for (std::uint64_t seed = 0; seed < (grid::sanitized() ? 1 : 4); ++seed) {
        const Simulated order({.order = seed == 0 ? Order::reverse : Order::random, .seed = seed});
        runner.run();
        CHECK_MESSAGE(grid::identical(first, runner.results()), std::string(v.name) << ", seed " << seed);
      }
    }
  }
}

// ---- Which tiles, which GPU -----------------------------------------------------------------------------------------------------------------

TEST_CASE("cpu: right around the edges of tiles, with each choice of tiles, whatever the GPU") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    std::vector<Problem> problems{many_tiles()};
    for (const int d : {30, 64, 96, 128, 129, 161, 256}) {
      const Tiles t = choices(grid::variant_named("tuned"), grid::problem_of({.d = d})).front().tiles;
      for (const int more : {-1, 1}) {
        if (more == 1 && (sm == 80 || d == 30 || d > 128)) continue;
        problems.push_back(grid::problem_of({.H = 1, .Hkv = 1, .Nq = t.Br + more, .Nk = 2 * t.Bc + more, .d = d}));
        if (sm != 80)
          problems.push_back(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 2 * t.Br + more, .Nk = t.Bc + more, .d = d})));
      }
    }
    for (const Problem& p : grid::counted(problems)) {
      const Inputs inputs = make_inputs(p, InputKind::normal, 88, Pass::forward);
      const Checker checker(p, inputs, Pass::forward, Sample{});
      for (const Variant& v : forward_steps()) {
        for (const TileChoice& choice : choices(v, p)) check(checker, v, choice, p, inputs);
      }
    }
  }
}

TEST_CASE("chapter: each GPU has tiles for each d, and the first with a block for each SM is the default") {
  for (const int sm : {75, 80, 90}) {
    const Simulated gpu({.target_sm = sm});
    const DeviceLimits limits = grid::device().limits();
    for (const Variant& v : forward_steps()) {
      for (int d = 1; d <= 256; ++d) {
        // So many heads that every SM has blocks, whatever the tiles: the order in which the kernels are compiled.
        const std::vector<TileChoice> ranked = choices(v, grid::problem_of({.H = 512, .Hkv = 512, .Nq = 128, .d = d}));
        INFO(std::string(v.name) << ", sm_" << sm << ", d=" << d);
        REQUIRE(!ranked.empty());
        for (const TileChoice& choice : ranked) {
          CHECK(choice.shared_bytes <= limits.shared_bytes);
          CHECK((choice.threads >= 64 && choice.threads <= 256 && choice.threads % 32 == 0));
          CHECK(std::count_if(ranked.begin(), ranked.end(), [&](const TileChoice& c) { return c.tiles == choice.tiles; }) == 1);
        }
        for (const int heads : {1, 4, 12, 24, 128}) {
          const Problem p = grid::problem_of({.H = heads, .Hkv = heads, .Nq = 1024, .Nk = 1024, .d = d});
          const auto fills = [&](const TileChoice& c) {
            return (p.Nq + c.tiles.Br - 1) / c.tiles.Br * heads >= limits.multiprocessors;
          };
          const auto first = std::find_if(ranked.begin(), ranked.end(), fills);
          CHECK(choices(v, p).front().tiles == (first == ranked.end() ? ranked.front() : *first).tiles);
        }
      }
    }
  }
}

TEST_CASE("chapter: bf16 is refused where it does not exist, and d beyond 256 everywhere") {
  Problem p = grid::problem_of({.d = 64});
  for (const Variant& v : grid::variants()) {
    for (const int sm : {75, 80, 90}) {
      const Simulated gpu({.target_sm = sm});
      const DeviceLimits limits = grid::device().limits();
      p.dtype = Dtype::fp16;
      CHECK(refusal_on(v, p, limits) == "");
      p.dtype = Dtype::bf16;
      const std::string refused = refusal_on(v, p, limits);
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

TEST_CASE("chapter: problems whose grid has no room are refused") {
  for (const Variant& v : forward_steps()) {
    Problem p = grid::problem_of({.H = 1, .Hkv = 1, .Nq = 1 << 30, .Nk = 64, .d = 64});
    CHECK(refusal(v, p) == "");
    p.H = p.Hkv = 1 << 7;  // 2^25 tiles of 32 queries each
    CHECK(refusal(v, p) != "");
    p.H = p.Hkv = 63;
    CHECK(refusal(v, p) == "");
    std::swap(p.Nq, p.Nk);
    p.H = p.Hkv = 1 << 7;
    CHECK(refusal(v, p) == "");
    p.d = 59;  // keys are padded in blocks of 32
    CHECK(refusal(v, p) != "");
  }
}

}  // namespace
}  // namespace flash
