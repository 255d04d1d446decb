// A stage in 16 bits next to one in fp32: what runs without --dtype, and what each refuses.
#include "common/harness/test/program.hpp"

#include <nlohmann/json.hpp>

#include <cstdlib>

namespace {

using flash::ProcessResult;
using flash::test::check_refused;
using Json = nlohmann::json;

ProcessResult run(const char* program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--device", "cpu", "--seq", "20", "--heads", "1"});
  return flash::test::run_program(program, arguments);
}

/// The report of a run that has to pass.
Json report(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const ProcessResult result = run(FLASH_HALF_STAGE, arguments);
  CHECK_MESSAGE(result.exit_code == 0, result.error);
  return Json::parse(result.output);
}

}  // namespace

TEST_CASE("half: without --dtype a stage runs the first of its dtypes") {
  CHECK(report({}).at("problem").at("dtype") == "fp16");
  CHECK(report({"--dtype", "bf16"}).at("problem").at("dtype") == "bf16");
  check_refused(run(FLASH_HALF_STAGE, {"--dtype", "fp32"}), 2, "--dtype is fp32; allowed: fp16, bf16");
  check_refused(run(FLASH_FP32_STAGE, {"--dtype", "bf16"}), 2, "--dtype is bf16; allowed: fp32; 08_tensor_cores takes fp16");
}

TEST_CASE("half: what this device cannot run is no usable device, and says why") {
  setenv("FLASH_SIMT_TARGET", "75", 1);
  check_refused(run(FLASH_HALF_STAGE, {"--variant", "mma", "--dtype", "bf16"}), 3,
                "bf16 needs compute capability 8.0 or newer");
  CHECK(report({"--variant", "mma"}).at("problem").at("dtype") == "fp16");
  const ProcessResult list = run(FLASH_HALF_STAGE, {"--list", "--dtype", "bf16"});
  CHECK(list.output.find("none fits") != std::string::npos);
  unsetenv("FLASH_SIMT_TARGET");
}
