// Bad input to a real stage program: exit code 2, one line on stderr, nothing on stdout; and the codes of everything else.
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

// What the command line alone refuses is for test_options.cpp.
TEST_CASE("bad input: command lines") {
  const std::vector<std::vector<std::string>> cases{
      {"--seq", "1073741824"},
      {"--head-dim", "129"},  // of this stage
      {"--layout", "qkv", "--heads", "4", "--kv-heads", "2"},
      {"--dtype", "fp16"},  // this stage takes fp32
      {"--window", "3,-2"},
      {"--softcap", "-1"},
      {"--dropout", "1"},
      {"--dropout", "0.1", "--dropout-seed", "-1"},
      {"--score", "cosine"},
      {"--score", "lorentz", "--variant", "naive"},
      {"--values", "centroid"},  // without --score lorentz
      {"--score", "lorentz", "--values", "mean"},
      {"--score", "lorentz", "--values", "centroid", "--dropout", "0.1"},
      {"--bias-gradient"},
      {"--bias-gradient", "--bias", "matrix"},  // of a forward pass
      {"--bias-gradient", "--pass", "backward", "--bias", "alibi"},
      {"--bias-gradient", "--pass", "backward", "--bias", "matrix", "--variant", "naive"},
      {"--lengths", ""},
      {"--lengths", "0,0:9"},
      {"--lengths", "5,6", "--seq", "11"},
      {"--lengths", "5,6:7", "--layout", "qkv"},
      {"--window", "3,0", "--variant", "naive"},  // which does not know it
      {"--variant", "no-such-variant"},
      {"--bench", "--device", "cpu"},
      {"--list", "--variant", "no-such-variant"},
      {"--tiles", "32,32"},
      {"--load", "/no/such/folder"},
      {"--load", "/dev/null"},
      {"--save", "/dev/null/folder"},
      {"--save", "/proc"},  // not to be written, by root neither
  };
  for (const auto& arguments : cases) {
    std::string name;
    for (const std::string& argument : arguments) name += argument + " ";
    check_refused(name, arguments);
  }
}

TEST_CASE("bad input: --tune where there is nothing to tune") {
  const std::string error = stage({"--tune", "--device", "cpu"}).error;
  CHECK(error == "01_naive: --tune is given, but no variant of this stage has tile sizes to choose from; leave it out\n");
}

TEST_CASE("bad input: control characters in a value stay within the one line") {
  const std::string two = "a\nb\x1b[31m\r";
  for (const char* option : {"--variant", "--seq", "--seed", "--scale", "--pass", "--load"}) {
    check_refused(option, {option, two});
  }
  check_refused("--save", {"--save", "/dev/null/" + two});
  check_refused("unknown", {"--" + two});
  check_refused("stray", {two});
  const ProcessResult result = stage({"--variant", two});
  CHECK_MESSAGE(result.error.find("'a\\nb\\x1b[31m\\x0d'") != std::string::npos, result.error);

  setenv("FLASH_SIMT_ORDER", two.c_str(), 1);
  check_refused("FLASH_SIMT_ORDER", {"--device", "cpu", "--seq", "4"});
  unsetenv("FLASH_SIMT_ORDER");
}

TEST_CASE("exit codes: a run on files, with a gradient of the seed") {
  const TemporaryFolder folder;
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) write_bytes(folder.path() / name, npy_file(1, 1, 4, 8));
  CHECK(stage({"--device", "cpu", "--load", folder.path().string(), "--seed", "5", "--pass", "backward"}).exit_code == 0);
}

TEST_CASE("bad input: a result that does not fit the medium is said, and not left half written") {
  const TemporaryFolder folder;
  const ProcessResult result =
      flash::run_process({"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" --device cpu --seq 32 --save \"$1\"",
                          FLASH_STAGE_PROGRAM, folder.path().string()},
                         std::chrono::seconds(60));
  CHECK(result.exit_code == 2);
  CHECK(result.output.empty());
  CHECK_MESSAGE(result.error == "01_naive: " + (folder.path() / "o.npy").string() + " cannot be written: File too large\n",
                result.error);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("exit codes: good runs, answers, a failed check, too little memory") {
  for (const char* option : {"--help", "--version", "--list"}) {
    const ProcessResult result = stage({option});
    CHECK(result.exit_code == 0);
    CHECK_FALSE(result.output.empty());
    CHECK(result.error.empty());
  }
  const std::vector<std::string> small{"--device", "cpu", "--heads", "1", "--seq", "9", "--head-dim", "5"};
  CHECK(stage(small).exit_code == 0);

  std::vector<std::string> large = small;
  large.insert(large.end(), {"--input", "large"});
  const ProcessResult failed = stage(large);  // 01_naive does not subtract the max
  CHECK(failed.exit_code == 1);
  CHECK(failed.output.find("exp overflows") != std::string::npos);

  flash::test::check_refused(stage({"--device", "cpu", "--batch", "1", "--heads", "1", "--seq", "2000000", "--head-dim", "1"}),
                             3);
}
