// Inputs: the same from the same seed, of the promised shape and distribution. The runner, and what is in memory before a run, or does not fit.
#include "common/attention/tensor_table.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/error.hpp"
#include "common/machine/isa/float16.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

FullProblem small() {
  FullProblem p;
  p.B = 2, p.H = 6, p.Hkv = 3, p.Nq = 33, p.Nk = 41, p.d = 40;
  return p;
}

}  // namespace

TEST_CASE("inputs: the seed decides, and each tensor has a stream of its own") {
  FullProblem p = small();
  const Inputs first = make_inputs(p, Pass::backward);
  CHECK(first.K.values != first.V.values);
  CHECK(first.Q.values != first.dO.values);
  p.Nq = 50;  // Q has other rows now, K has not changed
  CHECK(make_inputs(p, Pass::forward).K.values == first.K.values);
  p.seed = 2;
  CHECK(make_inputs(p, Pass::forward).K.values != first.K.values);
}

TEST_CASE("inputs: normal has mean 0, variance 1, and the tails of a normal distribution") {
  FullProblem p = small();
  p.Nq = 2000;
  const std::vector<float> values = make_inputs(p, Pass::forward).Q.values;
  const double n = static_cast<double>(values.size());  // 960,000
  double sum = 0, squares = 0, fourth = 0, neighbours = 0, before = 0;
  for (const double x : values) {
    sum += x, squares += x * x, fourth += x * x * x * x, neighbours += x * before;
    before = x;
  }
  // Five standard deviations of each estimate.
  CHECK(std::abs(sum / n) < 5 / std::sqrt(n));
  CHECK(std::abs(squares / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(fourth / n - 3) < 5 * std::sqrt(96 / n));
  CHECK(std::abs(neighbours / n) < 5 / std::sqrt(n));
}

TEST_CASE("inputs: the simple kinds, and ALiBi's slopes") {
  FullProblem p = small();
  p.bias = BiasKind::alibi, p.bias_per_batch = true, p.input = InputKind::ones;
  const Inputs ones = make_inputs(p, Pass::backward);
  CHECK(std::ranges::all_of(ones.V.values, [](float value) { return value == 1; }));
  CHECK(ones.dO.values[0] != ones.dO.values[1]);  // random whatever the kind is
  for (int i = 0; i < 12; ++i) CHECK(ones.bias(i / 6, i % 6, 0, 0) == doctest::Approx(std::exp2(-8.0 * (i % 6 + 1) / 6)));

  p.input = InputKind::ramp;
  const Inputs ramp = make_inputs(p, Pass::forward);
  CHECK(ramp.V(1, 2, 7, 25) == doctest::Approx(7.025f));
  CHECK(ramp.Q(1, 5, 32, 39) == 1);
  p.input = InputKind::identity;
  const Inputs identity = make_inputs(p, Pass::forward);
  CHECK(identity.K(1, 0, 40, 0) == 1);  // 40 mod d = 0
  CHECK(identity.K(1, 0, 40, 39) == 0);
}

TEST_CASE("runner: no run finds in its outputs and workspaces what an earlier one wrote") {
  static std::vector<float> found;  // by each run
  Variant variant{.name = "first", .idea = "writes in its first run only"};
  variant.workspace = [](const Problem&, Pass) { return std::vector<WorkspaceSpec>{{.name = "kept", .shape = {1, 1, 1, 1}}}; };
  variant.forward = [](const Attention& a) {
    float& kept = *static_cast<float*>(a.workspace("kept").data);
    found.push_back(kept);
    if (found.size() > 1) return;
    std::fill_n(static_cast<float*>(a.O.data), a.O.elements(), 1.0f);
    kept = 1;
  };
  const FullProblem p = small();
  const auto device = open_cpu();
  Runner runner(*device, variant, p, make_inputs(p, Pass::forward), Pass::forward);
  runner.run();
  CHECK(runner.results().O.values[0] == 1);
  runner.run();
  CHECK(std::ranges::all_of(runner.results().O.values, [](float value) { return std::isnan(value); }));
  CHECK((std::isnan(found.at(0)) && std::isnan(found.at(1))));
}

TEST_CASE("memory: what fits neither a GPU nor the host is refused, and the host stages packed tensors together") {
  const Variant variant{.name = "any", .idea = "needs nothing more", .forward = nullptr};
  const auto gpu_with = [](std::size_t bytes) {
    DeviceInfo gpu;
    gpu.kind = Backend::gpu, gpu.name = "GPU", gpu.memory_free = bytes;
    return gpu;
  };
  CHECK_THROWS_AS(check_memory(gpu_with(1000), variant, small(), Pass::forward, /*loaded=*/false), DeviceError);
  FullProblem p = small();
  p.Hkv = p.H, p.Nq = p.Nk = largest_size, p.d = largest_head_dim;  // 12 TiB for each tensor
  std::string needs[2];
  for (const Layout layout : {Layout::bhnd, Layout::qkv}) try {
      p.layout = layout;
      check_memory(gpu_with(std::size_t(-1)), variant, p, Pass::forward, /*loaded=*/false);
    } catch (const DeviceError& error) {
      const std::string why = error.what();
      needs[layout == Layout::qkv] = why.substr(0, why.find(';'));
    }
  CHECK(needs[0].find("main memory") != std::string::npos);
  CHECK(needs[1].find("main memory") != std::string::npos);
  CHECK(needs[0] != needs[1]);
}

}  // namespace flash
