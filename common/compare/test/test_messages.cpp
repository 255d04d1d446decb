// What the comparison program says of programs that do not answer, of the environment, and of output that cannot be written.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace flash::test;
using flash::ProcessResult;

TEST_CASE("compare: what a stage program or the environment says is handed on") {
  const FakeStages stages, broken;
  stages.add("01_first", prints(passed_report()));
  broken.add_raw("01_broken", "echo 'its library is missing' >&2; exit 127");
  check_refused(compare(broken, {}), "01_broken --list --json does not answer: its library is missing");
  broken.add_raw("01_broken", "kill -SEGV $$");
  check_refused(compare(broken, {}), "01_broken --list --json does not answer: it was ended by a signal: Segmentation fault");
  setenv("FLASH_SIMT_ORDER", "bogus", 1);
  check_refused(compare(stages, {}), "compare: FLASH_SIMT_ORDER=bogus: allowed are forward, reverse");
  unsetenv("FLASH_SIMT_ORDER");
  setenv("FLASH_COMIT", "1", 1);
  check_refused(compare(stages, {}), "compare: the environment variable FLASH_COMIT is unknown; allowed: ");
  unsetenv("FLASH_COMIT");
  CHECK(contains(compare({"--help"}).output, "\nEnvironment:\n  FLASH_SIMT_ORDER=forward|reverse|random:SEED\n"));
}

TEST_CASE("compare: output that cannot be written is said") {
  const FakeStages stages;
  stages.add("01_first", prints(passed_report()));
  const std::string full = "exec \"$@\" > /dev/full";
  for (const char* option : {"--help", "--json", "--csv", "--no-causal"}) {
    CAPTURE(option);
    const ProcessResult result = flash::run_process(
        {"/bin/sh", "-c", full, "sh", FLASH_COMPARE_PROGRAM, "--bin", stages.path(), "--device", "cpu", option},
        std::chrono::seconds(60));
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(result.error.ends_with("compare: standard output cannot be written\n"), result.error);
  }
}
