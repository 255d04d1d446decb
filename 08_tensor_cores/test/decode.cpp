// What the page on decode (docs/reference/decode.md) claims of forward/more/decode.cuh and hopper_forward/more/decode.cuh: keys split over
// blocks, packed rows, and the merge.
#include "08_tensor_cores/test/parts.hpp"
#include "common/attention/cost.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace flash {
namespace {

using grid::causal;
using grid::with_bias;
using namespace tensor_test;

const Variant& decode() { return grid::variant_named("decode"); }

std::vector<Tiles> all_tiles(const FullProblem& p, const Variant& v = decode()) {
  std::vector<Tiles> all;
  for (const TileChoice& choice : choices(v, p, Pass::forward)) all.push_back(choice.tiles);
  return all;
}

TEST_CASE("cpu: decode is right with one split, two and many, around the edges of splits and tiles") {
  std::vector<FullProblem> problems;
  for (const int Nk : {1, 63, 64, 65, 127, 129, 300})
    problems.push_back(grid::problem_of({.H = 4, .Hkv = 1, .Nq = 1, .Nk = Nk, .d = 64}));
  problems.push_back(causal(grid::problem_of({.B = 2, .H = 6, .Hkv = 2, .Nq = 7, .Nk = 200, .d = 128})));  // 21 rows, two tiles
  // Hopper's: one tile of 128 rows, two, of which the first lacks keys of later splits; one and two tiles of wide heads. With large scores it
  // computes tiles twice.
  problems.push_back(causal(grid::problem_of({.H = 3, .Hkv = 1, .Nq = 37, .Nk = 300, .d = 64})));
  problems.push_back(causal(grid::problem_of({.H = 2, .Hkv = 1, .Nq = 110, .Nk = 300, .d = 72})));
  for (const int Nq : {60, 90}) problems.push_back(grid::problem_of({.H = 2, .Hkv = 1, .Nq = Nq, .Nk = 200, .d = 136}));
  for (FullProblem& p : problems) p.input = p.Nq > 16 ? InputKind::large : InputKind::normal;
  problems.push_back(with_bias(causal(grid::problem_of({.H = 4, .Hkv = 2, .Nq = 9, .Nk = 150, .d = 59})), BiasKind::matrix));
  problems.push_back(with_bias(grid::problem_of({.H = 3, .Hkv = 3, .Nq = 2, .Nk = 130, .d = 160}), BiasKind::alibi));
  for (const FullProblem& p : grid::counted(problems)) {
    const Inputs inputs = make_inputs(p, Pass::forward);
    const Checker checker(p, inputs, Pass::forward, Sample{});
    for (const Variant& v : forward_steps(p)) {
      if (!splits_keys(v) || (p.Nq > 16 && !is_for_hopper(v))) continue;
      // In the grid's small problems a split has one tile of keys: here the race detector sees rings go round.
      simt::Options options = simt::options();
      options.watch = is_for_hopper(v) && p.Nq > 16;
      const simt::Simulated watched(options);
      simt::reset_findings();
      for (const Tiles& tiles : all_tiles(p, v)) check(checker, v, tiles, p, inputs, Pass::forward);
      for (const simt::Race& race : simt::findings().races) FAIL_CHECK(std::string(v.name) << ": " << sentence(race));
      for (const simt::UnwrittenRead& read : simt::findings().unwritten)
        FAIL_CHECK(std::string(v.name) << ": " << sentence(read));
    }
  }
}

TEST_CASE("cpu: an empty split has O = 0 and L = -inf, and changes nothing") {
  // Query 0 sees 57 keys, all in the first split; of the second problem the first 56 queries see none at all.
  for (const FullProblem& p : {causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 200, .Nk = 256, .d = 64})),
                               causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 256, .Nk = 200, .d = 64}))}) {
    const Inputs inputs = make_inputs(p, Pass::forward);
    for (const Variant& v : forward_steps(p)) {
      if (!splits_keys(v)) continue;
      const Tiles tiles = is_for_hopper(v) ? Tiles{64, 128} : Tiles{16, 64};
      Runner runner(grid::device(), v, p, inputs, Pass::forward, tiles);
      runner.run();
      check(Checker(p, inputs, Pass::forward, Sample{}), v, tiles, p, runner);
      const auto part = [&](const char* name, int split, int columns) {  // of query 0
        const TensorRef& all = runner.attention().workspace(name);
        std::vector<float> row(static_cast<std::size_t>(columns));
        const auto* const first = static_cast<const float*>(all.data) + std::int64_t{split} * p.Nq * columns;
        grid::device().download(row.data(), first, row.size() * sizeof(float));
        return row;
      };
      for (int split = p.keys_of(0).end > 0 ? 1 : 0; split * tiles.Bc < p.Nk; ++split) {
        CHECK(part("part_L", split, 1)[0] == -std::numeric_limits<float>::infinity());
        const std::vector<float> O = part("part_O", split, p.d);
        CHECK(std::all_of(O.begin(), O.end(), [](float x) { return x == 0.0f; }));
      }
    }
  }
}

TEST_CASE("cpu: with a fixed split a sequence has the same bits alone and in a batch") {
  const FullProblem batch = grid::problem_of({.B = 3, .H = 4, .Hkv = 2, .Nq = 2, .Nk = 300, .d = 64});
  const Inputs inputs = make_inputs(batch, Pass::forward);
  FullProblem alone = batch;
  alone.B = 1;
  for (const Tiles& tiles : {Tiles{16, 64}, Tiles{16, 128}, Tiles{16, 320}, Tiles{64, 128}}) {
    const Variant& v = grid::variant_named(tiles.Br == 16 ? "decode" : "decode_hopper");
    if (is_for_hopper(v) && grid::device().limits().sm != 90) continue;
    Runner together(grid::device(), v, batch, inputs, Pass::forward, tiles);
    together.run();
    const Results<float> all = together.results();
    for (int b = 0; b < batch.B; ++b) {
      Inputs one = make_inputs(alone, Pass::forward);
      for (auto tensor : {&Inputs::Q, &Inputs::K, &Inputs::V}) {
        auto& values = (one.*tensor).values;
        std::copy_n((inputs.*tensor).values.begin() + static_cast<std::ptrdiff_t>(b * values.size()), values.size(),
                    values.begin());
      }
      Runner single(grid::device(), v, alone, one, Pass::forward, tiles);
      single.run();
      const Results<float> got = single.results();
      INFO("sequence " << b << ", splits of " << tiles.Bc);
      CHECK(std::equal(got.O.values.begin(), got.O.values.end(),
                       all.O.values.begin() + static_cast<std::ptrdiff_t>(b * got.O.values.size())));
      CHECK(std::equal(got.L.values.begin(), got.L.values.end(),
                       all.L.values.begin() + static_cast<std::ptrdiff_t>(b * got.L.values.size())));
    }
  }
}

TEST_CASE("chapter: the default splits are those that were fastest on an H100, and each fixed size exists in every batch") {
  const struct {
    int B, Hkv, Nk, keys;
  } measured[] = {{1, 8, 2048, 128},    {1, 8, 8192, 256},   {1, 8, 32768, 1024},  {1, 8, 131072, 4096},
                  {1, 32, 32768, 4096}, {8, 8, 32768, 8192}, {8, 32, 32768, 32768}};
  for (const auto& m : measured) {
    const FullProblem p = grid::problem_of({.B = m.B, .H = 32, .Hkv = m.Hkv, .Nq = 1, .Nk = m.Nk, .d = 128});
    const std::vector<Tiles> all = all_tiles(p);
    INFO(describe(p) << ", splits of " << all.front().Bc);
    CHECK(all.front().Bc == m.keys);
    for (const int keys : {4096, 16384, 32768})
      CHECK(std::count(all.begin(), all.end(), Tiles{16, keys}) == (keys <= m.Nk ? 1 : 0));
  }
}

TEST_CASE("cpu: decode reads K and V once, however many heads share them") {
  for (const FullProblem& p :
       grid::counted({grid::problem_of({.H = 8, .Hkv = 2, .Nq = 1, .Nk = 256, .d = 64}),
                      causal(grid::problem_of({.B = 2, .H = 4, .Hkv = 1, .Nq = 4, .Nk = 300, .d = 128})),
                      with_bias(causal(grid::problem_of({.H = 6, .Hkv = 2, .Nq = 11, .Nk = 130, .d = 75})), BiasKind::alibi),
                      grid::problem_of({.H = 2, .Hkv = 1, .Nq = 3, .Nk = 192, .d = 256})})) {
    for (const Variant& v : forward_steps(p)) {
      if (!splits_keys(v)) continue;
      for (const Tiles& tiles : all_tiles(p, v)) {
        grid::check_prediction(v, p, Pass::forward, tiles);
        if (p.group_size() * p.Nq > tiles.Br || p.d % 8 != 0) continue;
        auto moved = predict(v, p, Pass::forward, grid::device().limits(), tiles).tensors;
        CHECK(moved["K"].read == 2 * std::int64_t{p.B} * p.Hkv * p.Nk * p.d);
        CHECK(moved["V"].read == moved["K"].read);
      }
    }
  }
}

TEST_CASE("chapter: it is the default for few rows and many keys, and takes no larger grid than CUDA has") {
  FullProblem p = grid::problem_of({.H = 32, .Hkv = 8, .Nq = 4, .Nk = 1000, .d = 128});
  const auto fastest = [&](int sm, Pass pass = Pass::forward) {
    const Variant* const found = fastest_variant(Backend::cpu, p, pass, DeviceLimits{.sm = sm});
    return std::string(found == nullptr ? "" : found->name);
  };
  p.dtype = Dtype::bf16;
  CHECK(fastest(80) == "decode");
  CHECK(fastest(90) == "decode_hopper");
  CHECK(fastest(90, Pass::backward).find("decode") == std::string::npos);
  p.Nq = 5;  // 20 rows
  CHECK(fastest(80) == "");
  CHECK(fastest(90) == "decode_hopper");
  p.Nk = 100;
  CHECK(fastest(90) == "scheduled");
  p.Nq = 512, p.Nk = 16384;
  CHECK(fastest(90) == "decode_hopper");
  p.B = 4;  // blocks enough for 132 SMs
  CHECK(fastest(90) == "scheduled");
  p.d = 256;
  CHECK(fastest(90) == "scheduled");
  p.d = 192;
  CHECK(fastest(90) == "options_hopper");
  p.d = 64, p.Nq = 256;  // one tile for step 7
  CHECK(fastest(90) == "scheduled");
  p.d = 128;
  p.Nq = 1, p.Nk = 1 << 17;  // HBM decides
  CHECK(fastest(90) == "decode");
  p.B = 1, p.Nq = 512, p.Nk = 16384;
  p.bias = BiasKind::alibi;
  CHECK(fastest(90) == "options_hopper");
  p.bias = BiasKind::none;
  p.H = 64, p.Hkv = 1, p.Nq = 1 << 26;  // 2^32 rows of a group: an estimate has to survive them
  CHECK(fastest(90) == "scheduled");
  p.Nq = 1 << 26;
  p.H = p.Hkv = 31;
  CHECK(refusal(decode(), p) == "");
  p.H = p.Hkv = 32;  // 2^31 rows, each with a block of the second kernel
  CHECK(refusal(decode(), p).find("blocks in a row") != std::string::npos);
  p.Nq = 1;
  p.Nk = 1 << 30;
  CHECK(refusal(decode(), p) == "");
}

}  // namespace
}  // namespace flash
