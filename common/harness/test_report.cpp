// Reports of runs that no machine here can have: the JSON holds no number that JSON has not, the text says where a result is wrong and how fast it
// was. The reports of real runs: test_stage.py.
#include "common/harness/report.hpp"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <sstream>

namespace flash {
namespace {

using Json = nlohmann::json;

/// A forward run on a GPU, checked and timed.
RunRecord gpu_run() {
  RunRecord run;
  run.stage = {.name = "09_test", .idea = "an idea", .backward_stage = ""};
  run.variant = {.name = "plain", .idea = "nothing new", .forward = nullptr};
  run.device.kind = Backend::gpu;
  run.device.name = "GPU";
  run.device.peak_fp32_tflops = 50;
  run.problem.B = run.problem.H = run.problem.Hkv = 10;
  run.problem.Nq = run.problem.Nk = 1000;
  run.problem.d = 50;
  TensorCheck o;
  o.tensor = "o";
  o.passed = true;
  run.check = CheckReport{.passed = true, .sampled = false, .tensors = {o}};
  run.timing = Timing{.median_ms = 2, .min_ms = 1.5, .max_ms = 3, .iterations = 20};
  return run;
}

/// Does the text say so, wherever its lines end?
bool has(std::string text, const std::string& part) {
  for (std::size_t at = 0; (at = text.find("\n               ", at)) != std::string::npos;) text.replace(at, 16, " ");
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("report: a timed run") {
  const RunRecord run = gpu_run();
  const Json json = Json::parse(json_of(run));
  CHECK(json.at("time").at("median_ms") == 2.0);
  for (const char* key : {"tiles", "predicted"}) CHECK(json.at(key).is_null());
  CHECK(has(text_of(run), "2 ms (median of 20"));
  CHECK(json.at("flops") == 2e10);  // 4 * 100 heads * 10^6 pairs * 50
  CHECK(has(text_of(run), "10 TFLOP/s, 20 % of"));
}

TEST_CASE("report: numbers that are not finite, odd bytes, long names, and the worst element") {
  RunRecord run = gpu_run();
  TensorCheck& o = run.check->tensors[0];
  o.passed = run.check->passed = false;
  o.max_abs = std::numeric_limits<double>::infinity();
  o.worst = {.b = 1, .h = 2, .row = 3, .col = 4, .got = std::numeric_limits<double>::quiet_NaN(), .expected = 0.25};
  run.load = "folder\xff\"\n";
  const Json json = Json::parse(json_of(run)), json_o = json.at("check").at("tensors").at("o");
  CHECK(json_o.at("max_abs").is_null());
  CHECK(json_o.at("worst").at("got").is_null());
  CHECK(json_o.at("worst").at("expected") == 0.25);
  CHECK(json.at("problem").contains("load"));
  CHECK_FALSE(json.at("problem").contains("input"));

  run.load = run.device.name =
      "a name as long as a sentence, with (R) and (TM) and @ 2.00GHz, that does not fit a line any more";
  CHECK(has(text_of(run), "worst at batch 1, head 2, row 3, column 4: got not finite, expected 0.25"));
  std::istringstream lines(text_of(run));
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("tiles: a device too small for a choice does not offer it, and one too small for all is no usable device") {
  const Variant variant{
      .name = "big", .idea = "", .forward = nullptr, .tiles = [](const Problem&, Pass pass, const DeviceLimits& limits) {
        std::vector<TileChoice> all{{{64, 64}, 64, 100000, ""}, {{32, 32}, 64, pass == Pass::forward ? 50000u : 60000u, ""}};
        std::erase_if(all, [&](const TileChoice& choice) { return choice.shared_bytes > limits.shared_bytes; });
        return all;
      }};
  DeviceLimits limits;
  const FullProblem p;
  CHECK(plan_pass(variant, p, Pass::forward, limits).choice.tiles == Tiles{64, 64});
  limits.shared_bytes = 65536;
  CHECK(plan_pass(variant, p, Pass::forward, limits).choice.tiles == Tiles{32, 32});
  CHECK_THROWS_AS(plan_pass(variant, p, Pass::forward, limits, Tiles{64, 64}), UsageError);
  limits.shared_bytes = 55000;
  CHECK_THROWS_AS(plan_pass(variant, p, Pass::backward, limits), DeviceError);
}

}  // namespace flash
