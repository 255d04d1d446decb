#include "common/attention/variant.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flash {
namespace {

FullProblem everything() {
  FullProblem p;
  p.H = 4;
  p.Nk = 64;
  p.causal = true;
  p.bias = BiasKind::alibi;
  p.layout = Layout::kv;
  return p;
}

}  // namespace

TEST_CASE("features: a window, a softcap, lengths and dropout are refused by kernels that do not say that they know them") {
  Variant variant{.name = "test", .idea = "", .forward = nullptr};
  FullProblem p;
  p.window = {5, 0};
  p.softcap = 30.0f;
  p.sequences = {{0, 128}, {0, 128}};
  p.dropout = {0.1f, 1};
  CHECK(features_of(p) == all_options);
  CHECK(refusal(variant, p) == "it does not know --window, --softcap, --lengths, --dropout");
  variant.takes = every_kernel_takes | all_options;
  CHECK(refusal(variant, p) == "");
  p.bias_gradient = true;  // of these only some steps know the others
  p.score = Score::lorentz;
  p.values = Values::centroid;
  CHECK(refusal(variant, p) == "it does not know --bias-gradient, --score lorentz, --values centroid");
  variant.takes = Features::causal | Features::shared_heads | Features::packed_kv;
  CHECK(refusal(variant, everything()) == "it does not know --bias alibi, --seq-q unlike --seq-k");
  CHECK(names_of(every_kernel_takes).size() == 9);  // each has a name
}

TEST_CASE("features: a kernel for some problems only is refused the others") {
  const Variant variant{.name = "test",
                        .idea = "",
                        .forward = nullptr,
                        .takes = Features::softcap | Features::lorentz,
                        .needs = Features::lorentz};
  FullProblem p;
  CHECK_FALSE(knows(variant, p));
  CHECK(refusal(variant, p) == "it is only for --score lorentz");
  p.score = Score::lorentz;
  p.softcap = 2.0f;
  CHECK(knows(variant, p));
  CHECK(refusal(variant, p) == "");
}

}  // namespace flash
