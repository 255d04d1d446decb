// How precise the forward steps of chapter 08 are: extreme scales, L and O as (8.10) says, and scores so large that their products round.
#include "08_tensor_cores/test/parts.hpp"
#include "common/harness/inputs.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace flash {
namespace {

using grid::causal;
using grid::scaled;
using grid::with_bias;
using namespace tensor_test;

TEST_CASE("cpu: right with a scale that is zero, negative, tiny or large") {
  for (const float scale : {0.0f, -0.0f, -0.3f, -4.0f, 1e-30f, 1e-42f, 8.0f}) {
    if (grid::sanitized() && scale != -0.3f) continue;
    const std::vector<FullProblem> problems{
        scaled(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 203, .d = 32}), scale),
        scaled(causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 130, .Nk = 100, .d = 59})), scale),
        scaled(with_bias(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 33, .Nk = 203, .d = 32}), BiasKind::matrix), scale)};
    for (const FullProblem& p : grid::counted(problems)) {
      const Inputs inputs = make_inputs(p, Pass::forward);
      const Checker checker(p, inputs, Pass::forward, Sample{});
      for (const Variant& v : forward_steps(p))
        check(checker, v, choices(v, p, Pass::forward).front().tiles, p, inputs, Pass::forward);
    }
  }
}

TEST_CASE("cpu: L within 1e-3, O rounded as its type rounds") {
  for (const FullProblem& p :
       grid::counted({with_bias(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 200, .d = 32}), BiasKind::alibi),
                      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 512, .d = 64}),
                      causal(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 257, .Nk = 257, .d = 128})),
                      grid::problem_of({.H = 1, .Hkv = 1, .Nq = 40, .Nk = 257, .d = 256}),
                      with_bias(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 200, .d = 32}), BiasKind::matrix)})) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      if (grid::sanitized() && dtype == Dtype::bf16) continue;
      FullProblem typed = p;
      typed.dtype = dtype;
      const Inputs inputs = make_inputs(typed, Pass::forward);
      const Checker checker(typed, inputs, Pass::forward, Sample{});
      const double unit = dtype == Dtype::fp16 ? std::exp2(-11) : std::exp2(-8);  // (8.10): u, of P and of O
      for (const Variant& v : forward_steps(typed)) {
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

TEST_CASE("cpu: keys with the same score weigh the same, however large it is") {
  // Scores of 2^23 - 1, in units of 1/8. c m = 1.5e6 has no 20th bit behind the point: 2^(c S - c m) of equal S and m may be 0.96.
  const FullProblem p = scaled(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 64, .Nk = 512, .d = 16}), 0.125f);
  Inputs inputs = make_inputs(p, Pass::forward);
  for (int c = 0; c < p.d; ++c) {
    for (int i = 0; i < p.Nq; ++i) inputs.Q(0, 0, i, c) = c == 0 ? 2896.0f : c == 1 ? 1791.0f : 0.0f;
    for (int j = 0; j < p.Nk; ++j) {
      inputs.K(0, 0, j, c) = c == 0 ? 2896.0f : c == 1 ? 1.0f : 0.0f;
      inputs.V(0, 0, j, c) = j < p.Nk / 2 ? 1.0f : 0.0f;
    }
  }
  for (const Variant& v : forward_steps(p)) {
    CHECK_MESSAGE(grid::run(v, p, inputs, Pass::forward).O(0, 0, 0, 0) == 0.5f, std::string(v.name));
  }
}

TEST_CASE("cpu: keys with the same score weigh the same in each tile while the maximum grows from tile to tile") {
  // c m is about 0.95 2^20 and grows by 0.59 per tile, but it is rounded to multiples of 1/16: an alpha that is not made of the rounded
  // products is up to 4 % off.
  const int tile = 128, tiles = 4;
  const FullProblem p = scaled(grid::problem_of({.H = 1, .Hkv = 1, .Nq = 16, .Nk = tiles * tile, .d = 16}), 0.082f);
  Inputs inputs = make_inputs(p, Pass::forward);
  for (int c = 0; c < p.d; ++c) {
    for (int i = 0; i < p.Nq; ++i) inputs.Q(0, 0, i, c) = c == 0 ? 2896.0f : c == 1 ? 1.0f : 0.0f;
    for (int j = 0; j < p.Nk; ++j) {
      // Each tile has one key with a new maximum. All others have the score of the first tile's maximum.
      const int more = j % tile == 0 ? 5 * (j / tile) : 0;
      inputs.K(0, 0, j, c) = c == 0 ? 2896.0f : c == 1 ? static_cast<float>(more) : 0.0f;
      inputs.V(0, 0, j, c) = j % tile != 0 && j / tile == c ? 1.0f : 0.0f;  // column c: the weight of tile c's equal keys
    }
  }
  for (const Variant& v : forward_steps(p)) {
    if (splits_keys(v)) continue;  // merges its splits by their L, which are as large, and rounded as well
    const Results<float> got = grid::run(v, p, inputs, Pass::forward);
    for (int c = 1; c < tiles; ++c)
      CHECK_MESSAGE(got.O(0, 0, 0, c) == doctest::Approx(got.O(0, 0, 0, 0)).epsilon(2e-3), std::string(v.name));
  }
}

}  // namespace
}  // namespace flash
