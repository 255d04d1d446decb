// Reports: the JSON has the promised keys and no number that JSON cannot hold; the text says where a result is wrong.
#include "common/harness/console.hpp"
#include "common/harness/report.hpp"
#include "common/harness/select.hpp"
#include "common/harness/test/lines.hpp"
#include "common/harness/text_table.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace {

using namespace flash;
using namespace flash::test;
using Json = nlohmann::json;

void no_kernel(const Attention&) {}

/// A forward run on a GPU, checked and timed.
RunRecord gpu_run() {
  RunRecord run;
  run.stage = {.name = "09_test", .idea = "an idea", .backward_stage = ""};
  run.variant.name = "plain";
  run.variant.idea = "nothing new";
  run.variant.forward = no_kernel;
  run.variant.file = "09_test/kernel.cuh";
  run.device.kind = Backend::gpu;
  run.device.name = "GPU";
  run.device.sm = 90;
  run.device.cuda = "13.0";
  run.device.driver = "1.2.3";
  run.device.peak_fp32_tflops = 50;
  run.seed = 7;
  run.workspace_bytes = 1024;
  run.problem.B = 10;
  run.problem.H = run.problem.Hkv = 10;
  run.problem.Nq = run.problem.Nk = 1000;
  run.problem.d = 50;
  TensorCheck o;
  o.tensor = "o";
  o.max_abs = 1e-6;
  o.rel_l2 = 2e-7;
  o.tolerance = 2e-6;
  o.passed = true;
  run.check = CheckReport{.passed = true, .sampled = false, .tensors = {o}};
  run.timing = Timing{
      .median_ms = 2, .min_ms = 1.5, .max_ms = 3, .iterations = 20, .cold_l2 = true, .enqueue_ms = 0.01, .first_enqueue_ms = 5};
  return run;
}

RunRecord cpu_run() {
  RunRecord run = gpu_run();
  run.device = {};
  run.device.name = "CPU";
  run.timing.reset();
  Counters counters;
  counters.traffic = {{"Q", 100, 0}, {"O", 0, 40}, {"S", 60, 60}};
  counters.barriers = 3;
  run.counters = counters;
  run.predicted = {.tensors = {{"Q", {100, 0}}, {"O", {0, 44}}}, .barriers = 4, .warp_operations = 0};
  return run;
}

/// A run whose output is NaN.
RunRecord failed_run() {
  RunRecord run = cpu_run();
  run.variant.subtracts_max = false;
  TensorCheck& o = run.check->tensors[0];
  o.max_abs = std::numeric_limits<double>::infinity();
  o.passed = run.check->passed = false;
  o.non_finite = 12;
  o.worst = {.b = 1, .h = 2, .row = 3, .col = 4, .got = std::numeric_limits<double>::quiet_NaN(), .expected = 0.25};
  run.largest_score = 120.5f;
  return run;
}

}  // namespace

TEST_CASE("report: JSON of a timed run") {
  const Json json = Json::parse(report_of(gpu_run(), Format::json));
  CHECK(json.at("stage") == "09_test");
  CHECK(json.at("variant") == "plain");
  CHECK(json.at("pass") == "forward");
  CHECK(json.at("kernel") == "09_test/kernel.cuh");
  CHECK(json.at("device") ==
        Json{{"kind", "gpu"}, {"name", "GPU"}, {"sm", 90}, {"cuda", "13.0"}, {"driver", "1.2.3"}, {"peak_fp32_tflops", 50}});
  CHECK(json.at("problem").at("seed") == 7);
  CHECK(json.at("extra_memory_bytes") == 1024);
  CHECK(json.at("check") ==
        Json{{"passed", true},
             {"sampled", false},
             {"tensors",
              {{"o", {{"max_abs", 1e-6}, {"rel_l2", 2e-7}, {"tolerance", 2e-6}, {"non_finite", 0}, {"passed", true}}}}}});
  CHECK(json.at("time") == Json{{"median_ms", 2.0},
                                {"min_ms", 1.5},
                                {"max_ms", 3.0},
                                {"iterations", 20},
                                {"cold_l2", true},
                                {"enqueue_ms", 0.01},
                                {"first_enqueue_ms", 5.0}});
  // 4 * 100 heads * 10^6 pairs * 50 = 2e10 FLOPs in 2 ms
  CHECK(json.at("tflops").get<double>() == doctest::Approx(10));
  CHECK(json.at("percent_of_peak").get<double>() == doctest::Approx(20));
  for (const char* key : {"tiles", "predicted"}) CHECK(json.at(key).is_null());
  CHECK_FALSE(json.contains("counters"));
}

TEST_CASE("report: JSON of a simulated run has counts and no times") {
  const Json json = Json::parse(report_of(cpu_run(), Format::json));
  for (const char* key : {"time", "tflops", "percent_of_peak", "saved"}) CHECK_FALSE(json.contains(key));
  const Json counters = json.at("counters");
  CHECK(counters.at("read_bytes") == 160);
  CHECK(counters.at("tensors").at("S").at("written_bytes") == 60);
  CHECK(counters.at("barriers") == 3);
  CHECK(json.at("predicted") ==
        Json{{"read_bytes", 100},
             {"written_bytes", 44},
             {"sectors", nullptr},
             {"barriers", 4},
             {"warp_operations", 0},
             {"tensors",
              {{"Q", {{"read_bytes", 100}, {"written_bytes", 0}}}, {"O", {{"read_bytes", 0}, {"written_bytes", 44}}}}}});
}

TEST_CASE("report: numbers that are not finite become null, odd bytes do not break the JSON") {
  RunRecord run = failed_run();
  run.load = "folder\xff\"\n";
  const Json json = Json::parse(report_of(run, Format::json));
  const Json o = json.at("check").at("tensors").at("o");
  CHECK(o.at("max_abs").is_null());
  CHECK(o.at("non_finite") == 12);
  CHECK(o.at("worst").at("got").is_null());
  CHECK(o.at("worst").at("expected") == 0.25);
  CHECK(json.at("problem").contains("load"));
}

TEST_CASE("report: the text of a failed check names the worst element") {
  const std::string text = words(report_of(failed_run(), Format::text));
  CHECK(text.find("FAILED") != std::string::npos);
  CHECK(text.find(
            "o is wrong (12 elements not finite), worst at batch 1, head 2, row 3, column 4: got not finite, expected 0.25") !=
        std::string::npos);
}

TEST_CASE("report: the text of runs that pass") {
  const std::string gpu = report_of(gpu_run(), Format::text);
  CHECK(gpu.find("2 ms (median of 20") != std::string::npos);
  CHECK(gpu.find("10 TFLOP/s, 20 % of this device's peak") != std::string::npos);
  RunRecord run = cpu_run();
  run.saved = {"out/o.npy", "out/lse.npy"};
  const std::string cpu = report_of(run, Format::text);
  CHECK(words(cpu).find("Q 100 100 0 0 0 O 0 0 44 40 0 S 0 60 0 60 0 all 100 160 44 100 0") != std::string::npos);
  CHECK(words(cpu).find("sectors of 32 bytes - 0 barriers 4 3 warp operations 0 0 ") != std::string::npos);
  CHECK(cpu.find("\n  saved        out/o.npy\n               out/lse.npy\n") != std::string::npos);
  CHECK(cpu.find(" ms") == std::string::npos);
  run.predicted = {};
  run.check.reset();
  const std::string unchecked = report_of(run, Format::text);
  CHECK(words(unchecked).find("Q - 100 - 0 0") != std::string::npos);
  CHECK(unchecked.find("skipped") != std::string::npos);
}

TEST_CASE("report: no line is longer than a terminal's") {
  RunRecord run = failed_run();
  run.variant.idea =
      "an idea that takes more words than a line of eighty columns has room for beside the names of stage and variant";
  run.device.name = "a processor whose maker gave it a name as long as a sentence, with (R) and (TM) and @ 2.00GHz";
  run.load = "/a/folder/with/a/long/name that goes on and on/until/it/does/not/fit/a/line/any/more";
  const std::string text = report_of(run, Format::text);
  CHECK_MESSAGE(longest_line(text) <= 80, text);
  CHECK_MESSAGE(words(text).find(run.variant.idea) != std::string::npos, text);
  const std::string list = list_of(run.stage, {run.variant}, {}, Format::text);
  CHECK_MESSAGE(longest_line(list) <= 80, list);
  CHECK_MESSAGE(words(list).find(run.variant.idea) != std::string::npos, list);
}

TEST_CASE("report: --list tells what a thread holds, where a kernel says so") {
  Variant variant = gpu_run().variant;
  variant.tiles = [](const Problem&, Pass, const DeviceLimits&) {
    return std::vector<TileChoice>{{{64, 32}, 128, 1024, "", {{"S", 8, 4, 16, 2, 1}}}, {{32, 32}, 128, 1024, ""}};
  };
  const Json tiles =
      Json::parse(list_of(gpu_run().stage, {variant}, {.problem = {}, .head_dims = {64}, .limits = {}}, Format::json));
  const Json choices = tiles.at("variants").at(0).at("tiles").at(0).at("choices");
  CHECK(choices.at(0).at("thread") == Json{{"S", {{"rows", 8}, {"cols", 4}, {"lanes", 16}, {"row_run", 2}, {"col_run", 1}}}});
  CHECK_FALSE(choices.at(1).contains("thread"));
}

TEST_CASE("text table: columns are as wide as their widest cell") {
  TextTable table({"a", "two\nlines"});
  table.add({"long name", "1"});
  CHECK(table.text(2, true) == "               two\n  a          lines\n  ---------  -----\n  long name      1\n");
  CHECK(count_text(999) == "999");
  CHECK(count_text(1234567) == "1,234,567");
}

TEST_CASE("report: which score explains a failed check") {
  RunRecord run = cpu_run();
  const auto has = [&](float score, const char* text) {
    run.largest_score = score;
    return words(report_of(run, Format::text)).find(text) != std::string::npos;
  };
  CHECK(has(120.5f, "reach 120"));
  CHECK(has(120.5f, "exp overflows in fp32 beyond 88.7. 02_safe_softmax"));
  CHECK(has(-640, "The largest score of that row is -640"));
  CHECK(has(-640, "exp underflows"));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float score : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    CHECK(has(score, "overflow fp32 themselves"));
    CHECK_FALSE(has(score, "02_safe_softmax"));  // which would fail as well
  }
}

TEST_CASE("report: a problem that keeps the simulator busy for minutes comes with a warning") {
  FullProblem p;
  CHECK(simulation_note(p, Pass::backward) == "");
  p.Nq = p.Nk = 1 << 16;
  CHECK(simulation_note(p, Pass::forward) != "");
}
