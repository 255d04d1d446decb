// Real stage programs on bad input: exit code 2, one line on stderr, nothing on stdout; and the codes of everything else.
#include "common/harness/test/program.hpp"
#include "common/harness/test/temporary_folder.hpp"

#include <cstdlib>

namespace {

using namespace flash::test;
using flash::ProcessResult;

ProcessResult stage(const std::vector<std::string>& arguments) { return run_program(FLASH_STAGE_PROGRAM, arguments); }

void check_refused(const std::string& name, const std::vector<std::string>& arguments) {
  CAPTURE(name);
  flash::test::check_refused(stage(arguments), 2, "01_naive: ");
}

}  // namespace

// One for each place that refuses something. What each of them refuses is for the tests of that place.
TEST_CASE("bad input: command lines") {
  const std::vector<std::vector<std::string>> cases{
      {"--seq", "1073741824"},
      {"--layout", "qkv", "--heads", "4", "--kv-heads", "2"},
      {"--window", "3,-2"},
      {"--values", "centroid"},  // without --score lorentz
      {"--lengths", "0,0:9"},
      {"--lengths", "5,6", "--seq", "11"},
      {"--bias-gradient"},                        // of a forward pass
      {"--head-dim", "129"},                      // of this stage
      {"--dtype", "fp16"},                        // this stage takes fp32
      {"--window", "3,0", "--variant", "naive"},  // which does not know it
      {"--variant", "no-such-variant"},
      {"--list", "--variant", "no-such-variant"},
      {"--bench", "--device", "cpu"},
      {"--tiles", "32,32"},
      {"--tune"},
      {"--load", "/no/such/folder"},
      {"--save", "/dev/null/folder"},
      {"--save", "/proc"},  // not to be written, by root neither
  };
  for (const auto& arguments : cases) {
    std::string name;
    for (const std::string& argument : arguments) name += argument + " ";
    check_refused(name, arguments);
  }
}

TEST_CASE("bad input: control characters in a value stay within the one line") {
  const std::string two = "a\nb\x1b[31m\r";
  check_refused("unknown", {"--" + two});
  check_refused("--load", {"--load", two});
  flash::test::check_refused(stage({"--variant", two}), 2, "'a\\nb\\x1b[31m\\x0d'");
  setenv("FLASH_SIMT_ORDER", two.c_str(), 1);
  check_refused("FLASH_SIMT_ORDER", {"--device", "cpu", "--seq", "4"});
  unsetenv("FLASH_SIMT_ORDER");
}

TEST_CASE("bad input: environment variables") {
  const auto run = [](const char* name, const char* value) {
    setenv(name, value, 1);
    const ProcessResult result = stage({"--device", "cpu", "--seq", "4", "--no-check", "--json"});
    unsetenv(name);
    return result;
  };
  check_refused(run("FLASH_SIMT_STEPS", "0"), 2, "FLASH_SIMT_STEPS=0: allowed are 1 to 2^62");
  check_refused(
      run("FLASH_SIMT_TRAGET", "75"), 2,
      "01_naive: the environment variable FLASH_SIMT_TRAGET is unknown; allowed: FLASH_SIMT_ORDER, FLASH_SIMT_THREADS");
  for (const char* of_others : {"FLASH_CHECK_PARTS", "FLASH_ATTENTION_FORCE_BUILD", "MY_FLASH_SIMT"})
    CHECK(run(of_others, "1").exit_code == 0);
  CHECK(contains(run("FLASH_SIMT_TARGET", "75").output, "\"simulates_sm\": 75,\n    \"order\": \"forward\""));
  CHECK(contains(run("FLASH_SIMT_ORDER", "random:7").output, "\"order\": \"random:7\""));
  CHECK(contains(stage({"--help"}).output, "  FLASH_SIMT_ORDER="));
}

TEST_CASE("bad input: output that cannot be written") {
  for (const char* arguments : {"--help", "--device cpu --seq 4 --json"}) {
    CAPTURE(arguments);
    const std::string command = std::string("\"$0\" ") + arguments + " > /dev/full";
    const ProcessResult result = flash::run_process({"/bin/sh", "-c", command, FLASH_STAGE_PROGRAM}, std::chrono::seconds(60));
    check_refused(result, 2, "01_naive: standard output cannot be written\n");
  }
}

TEST_CASE("bad input: a result that does not fit the medium is said, and not left half written") {
  const TemporaryFolder folder;
  const ProcessResult result =
      flash::run_process({"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" --device cpu --seq 32 --save \"$1\"",
                          FLASH_STAGE_PROGRAM, folder.path().string()},
                         std::chrono::seconds(60));
  check_refused(result, 2, "01_naive: " + (folder.path() / "o.npy").string() + " cannot be written: File too large\n");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("exit codes: good runs, answers, a failed check, too little memory") {
  for (const char* option : {"--help", "--version", "--list"}) {
    const ProcessResult result = stage({option});
    CHECK(result.exit_code == 0);
    CHECK_FALSE(result.output.empty());
    CHECK(result.error.empty());
  }
  std::vector<std::string> small{"--device", "cpu", "--heads", "1", "--seq", "9", "--head-dim", "5"};
  CHECK(stage(small).exit_code == 0);
  small.insert(small.end(), {"--input", "large"});
  const ProcessResult failed = stage(small);  // 01_naive does not subtract the max
  CHECK(failed.exit_code == 1);
  CHECK(contains(failed.output, "exp overflows"));
  check_refused(stage({"--device", "cpu", "--batch", "1", "--heads", "1", "--seq", "2000000", "--head-dim", "1"}), 3);

  const TemporaryFolder folder;
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write_bytes(folder.path() / name, npy_file(1, 1, 4, 8));
  CHECK(stage({"--device", "cpu", "--load", folder.path().string(), "--pass", "backward"}).exit_code == 0);
}
