// A real stage program and what is around it: environment variables, and output that cannot be written.
#include "common/harness/test/program.hpp"

#include <cstdlib>

namespace {

using flash::ProcessResult;

ProcessResult first_stage(const std::vector<std::string>& arguments) {
  return flash::test::run_program(FLASH_STAGE_PROGRAM, arguments);
}

}  // namespace

TEST_CASE("bad input: output that cannot be written") {
  for (const char* arguments : {"--help", "--list", "--device cpu --seq 4", "--device cpu --seq 4 --json"}) {
    CAPTURE(arguments);
    const std::string command = std::string("\"$0\" ") + arguments + " > /dev/full";
    const ProcessResult result = flash::run_process({"/bin/sh", "-c", command, FLASH_STAGE_PROGRAM}, std::chrono::seconds(60));
    CHECK(result.exit_code == 2);
    CHECK(result.error == "01_naive: standard output cannot be written\n");
  }
}

TEST_CASE("bad input: environment variables") {
  const auto check = [](const char* name, const char* value, const std::string& message) {
    CAPTURE(name);
    setenv(name, value, 1);
    const ProcessResult result = first_stage({"--device", "cpu", "--seq", "4"});
    unsetenv(name);
    CHECK_MESSAGE(result.exit_code == (message.empty() ? 0 : 2), result.error);
    CHECK_MESSAGE(result.error.find(message) != std::string::npos, result.error);
  };
  const std::string allowed =
      "allowed: FLASH_SIMT_ORDER, FLASH_SIMT_THREADS, FLASH_SIMT_TARGET, FLASH_SIMT_STEPS, FLASH_SIMT_TRACE";
  check("FLASH_SIMT_STEPS", "0", "FLASH_SIMT_STEPS=0: allowed are 1 to 2^62");
  check("FLASH_SIMT_TRAGET", "75", "01_naive: the environment variable FLASH_SIMT_TRAGET is unknown; " + allowed);
  check("FLASH_", "", "FLASH_ is unknown");
  check("FLASH_SIMT_THREADS", "0", "FLASH_SIMT_THREADS=0: allowed are 1 to 1024");
  check("FLASH_SIMT_THREADS", "2", "");
  check("FLASH_SIMT_TRACE", "/dev/null", "FLASH_SIMT_TRACE=/dev/null: allowed are a new file");
  check("FLASH_CHECK_PARTS", "tests", "");           // of a script
  check("FLASH_ATTENTION_FORCE_BUILD", "TRUE", "");  // of another project
  check("MY_FLASH_SIMT", "1", "");

  const std::string help = first_stage({"--help"}).output;
  for (const char* name : {"ORDER=", "THREADS=", "TARGET="})
    CHECK(help.find(std::string("  FLASH_SIMT_") + name) != std::string::npos);
  setenv("FLASH_SIMT_TRAGET", "75", 1);
  CHECK(first_stage({"--help"}).output == help);
  unsetenv("FLASH_SIMT_TRAGET");
}

TEST_CASE("report: the device line says what the simulator stands for") {
  const auto device_line = [] {
    const std::string text = first_stage({"--device", "cpu", "--seq", "4", "--no-check"}).output;
    const std::size_t start = text.find("  device ");
    return text.substr(start, text.find("\n  ", start + 80) - start);
  };
  CHECK_MESSAGE(device_line().find("CPU simulator of sm_90 on ") != std::string::npos, device_line());
  CHECK_MESSAGE(device_line().find("order") == std::string::npos, device_line());
  setenv("FLASH_SIMT_TARGET", "75", 1);
  setenv("FLASH_SIMT_ORDER", "random:7", 1);
  const ProcessResult result = first_stage({"--device", "cpu", "--seq", "4", "--no-check", "--json"});
  CHECK_MESSAGE(device_line().find("CPU simulator of sm_75 on ") != std::string::npos, device_line());
  unsetenv("FLASH_SIMT_TARGET");
  unsetenv("FLASH_SIMT_ORDER");
  CHECK_MESSAGE(result.output.find("\"simulates_sm\": 75,\n    \"order\": \"random:7\"") != std::string::npos, result.output);
}
