// Stages with a choice of tile sizes, and in 16 bits: what runs without --variant and --dtype, --tiles, --tune.
#include "common/harness/report.hpp"
#include "common/harness/test/lines.hpp"
#include "common/harness/test/program.hpp"
#include "common/harness/tiles.hpp"
#include "common/machine/error.hpp"

#include <nlohmann/json.hpp>

#include <cstdlib>

namespace {

using namespace flash;
using flash::test::contains;
using flash::test::longest_line;
using flash::test::words;
using Json = nlohmann::json;

/// Stage 06, whose register_tiles has a choice of two.
ProcessResult stage(std::vector<std::string> arguments, const char* program = FLASH_TILES_STAGE) {
  arguments.insert(arguments.begin(), {"--device", "cpu"});
  return flash::test::run_program(program, arguments);
}

const std::vector<std::string> problem{"--variant", "register_tiles", "--seq", "40", "--head-dim", "8", "--heads", "1"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.end(), problem.begin(), problem.end());
  return more;
}

Json json_of(std::vector<std::string> arguments, const char* program = FLASH_TILES_STAGE) {
  arguments.emplace_back("--json");
  const ProcessResult result = stage(arguments, program);
  CHECK_MESSAGE(result.exit_code == 0, result.error);
  return Json::parse(result.output);
}

void check_refused(const std::vector<std::string>& arguments, const std::string& expected) {
  flash::test::check_refused(stage(arguments), 2, expected);
}

/// Three choices on a GPU: the default, a faster one, a wrong one.
TuneRecord gpu_tuning() {
  TuneRecord record;
  record.run.stage.name = "06_fa2_forward";
  record.run.variant.name = "tiled";
  record.run.variant.idea = "";
  record.run.device.kind = Backend::gpu;
  record.run.device.name = "Test GPU";
  record.run.problem.causal = true;
  const auto add = [&](const Tiles& tiles, const char* why, bool passed, double ms) {
    TunedTiles tuned;
    tuned.choice = {tiles, 128, 10240, why};
    tuned.blocks_per_sm = 3;
    tuned.check = CheckReport{.passed = passed, .sampled = false, .tensors = {}};
    if (!passed) tuned.check->tensors.emplace_back().tensor = "o";
    if (passed) tuned.timing = Timing{.median_ms = ms, .min_ms = ms, .max_ms = ms, .iterations = 5, .cold_l2 = true};
    record.choices.push_back(tuned);
  };
  add({128, 64}, "suits most", true, 0.5);
  add({64, 64}, "more blocks", true, 0.4);
  add({32, 32}, "small", false, 0);
  return record;
}

}  // namespace

TEST_CASE("tiles: a variant for some problems only runs when it is named, though it is the last") {
  CHECK(json_of({"--seq", "20", "--heads", "1"}).at("variant") == "tuned");
  CHECK(json_of({"--seq", "20", "--heads", "1", "--variant", "decode"}).at("variant") == "decode");
  CHECK(json_of({"--list"}).at("variants").back().at("only_if_fastest") == true);
}

TEST_CASE("tiles: a problem with an option runs the step that knows it, unless another one is named") {
  for (const std::vector<std::string>& option :
       {std::vector<std::string>{"--window", "5,0"}, {"--softcap", "2"}, {"--lengths", "9,11"}, {"--dropout", "0.2"}}) {
    CHECK(json_of({option[0], option[1], "--heads", "1"}).at("variant") == "options");
    check_refused({option[0], option[1], "--variant", "tuned"}, "tuned refuses this problem: it does not know " + option[0]);
  }
}

TEST_CASE("half: without --dtype a stage runs the first of its dtypes") {
  const std::vector<std::string> small{"--seq", "20", "--heads", "1"};
  CHECK(json_of(small, FLASH_HALF_STAGE).at("problem").at("dtype") == "fp16");
  flash::test::check_refused(stage({"--dtype", "fp32"}, FLASH_HALF_STAGE), 2, "--dtype is fp32; allowed: fp16, bf16");
  check_refused({"--dtype", "bf16"}, "--dtype is bf16; allowed: fp32; 08_tensor_cores takes fp16");
}

TEST_CASE("half: what this device cannot run is no usable device, and says why") {
  setenv("FLASH_SIMT_TARGET", "75", 1);
  flash::test::check_refused(stage({"--variant", "mma", "--dtype", "bf16"}, FLASH_HALF_STAGE), 3,
                             "bf16 needs compute capability 8.0 or newer");
  CHECK(contains(stage({"--list", "--dtype", "bf16"}, FLASH_HALF_STAGE).output, "none fits"));
  unsetenv("FLASH_SIMT_TARGET");
}

TEST_CASE("tiles: --tiles runs what it says, the default is the first, and reports name them") {
  const Json standard = json_of(problem), large = json_of(with({"--tiles", "128,64"}));
  CHECK(standard.at("tiles") == Json{{"br", 64}, {"bc", 32}});
  CHECK(large.at("tiles") == Json{{"br", 128}, {"bc", 64}});
  CHECK(standard.at("counters").at("barriers") == 4);  // two tiles of 32 keys
  CHECK(large.at("counters").at("barriers") == 2);
  CHECK(contains(stage(with({"--tiles", "128,64"})).output, "Br=128 Bc=64"));
}

TEST_CASE("tiles: what is not compiled is refused in one line with what is") {
  check_refused({"--tiles", "7,9"}, "--tiles is 7,9; allowed for the forward pass of tuned at d=64 here: 64,");
  for (const char* text : {"", "8,", "8x8", "8,8,8", "0,8", "99999999999,8"}) {
    check_refused({"--tiles", text}, std::string("--tiles is '") + text + "'; allowed: Br,Bc");
  }
  check_refused({"--tune", "--tiles", "8,8"}, "--tune and --tiles");
  check_refused({"--tune", "--bench"}, "--tune and --bench");
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
  CHECK(choose_tiles(variant, p, Pass::forward, limits, {}) == Tiles{64, 64});
  limits.shared_bytes = 65536;
  CHECK(choose_tiles(variant, p, Pass::forward, limits, {}) == Tiles{32, 32});
  CHECK_THROWS_AS(choose_tiles(variant, p, Pass::forward, limits, Tiles{64, 64}), UsageError);
  limits.shared_bytes = 55000;
  CHECK(choose_tiles(variant, p, Pass::forward, limits, Tiles{32, 32}) == Tiles{32, 32});
  CHECK_THROWS_AS(choose_tiles(variant, p, Pass::backward, limits, {}), DeviceError);
}

TEST_CASE("tiles: --list shows them per pass and head dimension") {
  const std::string text = stage({"--list"}).output;
  CHECK(contains(text, "register_tiles   forward  32, 64           64,32 (default)  128,64"));
  CHECK(contains(text, "register_tiles   forward  96               32,32 (default)  64,64"));
  CHECK(contains(text, "tiles Br,Bc on sm_90"));
  const Json listed = json_of({"--list", "--head-dim", "80"}).at("variants").at(1).at("tiles");
  CHECK(listed.size() == 1);
  CHECK(listed.at(0).at("pass") == "forward");
  CHECK(listed.at(0).at("head_dims") == Json::array({80}));
  const Json choice = listed.at(0).at("choices").at(0);
  CHECK(choice.at("br") == 32);
  CHECK(choice.at("threads") == 64);
  CHECK(choice.at("shared_bytes") == 43520);
}

TEST_CASE("tiles: --tune on the CPU counts every choice and shows no time") {
  const Json json = json_of(with({"--tune", "--causal"}));
  CHECK(json.at("variant") == "register_tiles");
  const Json tune = json.at("tune");
  CHECK(tune.at("default") == Json{{"br", 64}, {"bc", 32}});
  CHECK(tune.at("fastest").is_null());
  CHECK(tune.at("choices").size() == 2);
  for (const Json& choice : tune.at("choices")) {
    CHECK(choice.at("check").at("passed") == true);
    CHECK_FALSE(choice.contains("time"));
    CHECK_FALSE(choice.contains("tflops"));
  }
  CHECK(tune.at("choices").at(1).at("counters").at("barriers") == 2);
  CHECK(tune.at("choices").at(0).at("blocks_per_sm") == 7);  // 228 KB hold seven times 28 + 1 KB
  const std::string text = stage(with({"--tune", "--causal"})).output;
  CHECK_FALSE(contains(text, " ms"));
  CHECK(contains(text, "ok, default"));
  CHECK(longest_line(text) <= 80);
  CHECK(contains(words(text), "64,32 for d=8, causal, forward, on CPU simulator"));
  CHECK(contains(words(text), tune.at("why").get<std::string>()));
}

TEST_CASE("tiles: --tune with a wrong choice fails, and says which") {
  const ProcessResult result = stage(with({"--tune", "--scale", "1e38"}));  // scores overflow
  CHECK(result.exit_code == 1);
  CHECK(contains(result.output, "WRONG"));
  CHECK(contains(result.output, "tiles 128,64: o is wrong"));
  const ProcessResult unchecked = stage(with({"--tune", "--scale", "1e38", "--no-check"}));
  CHECK(unchecked.exit_code == 0);
  CHECK(contains(unchecked.output, "unchecked"));
}

TEST_CASE("tiles: the report of --tune on a GPU") {
  const TuneRecord record = gpu_tuning();
  CHECK_FALSE(record.passed());
  const std::string text = words(report_of(record, Format::text));
  CAPTURE(text);
  for (const char* part : {"median", "TFLOP/s", "ok, default", "ok, fastest", "WRONG", "128,64 for d=64, causal, forward",
                           "suits most", "64,64 (more blocks); the default takes 25 % longer", "tiles 32,32: o is wrong"}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
  CHECK_FALSE(contains(text, "sectors"));
  const Json tune = Json::parse(report_of(record, Format::json)).at("tune");
  CHECK(tune.at("fastest") == Json{{"br", 64}, {"bc", 64}});
  CHECK(tune.at("choices").at(1).at("time").at("median_ms") == 0.4);
  CHECK(tune.at("choices").at(1).at("tflops") > tune.at("choices").at(0).at("tflops"));
  CHECK_FALSE(tune.at("choices").at(2).contains("time"));
}
