// Child processes.
#include "common/base/process.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>

TEST_CASE("process: both streams, the exit code, no input, and arguments as they are, without a shell") {
  const flash::ProcessResult result =
      flash::run_process({"/bin/sh", "-c", "cat; echo out; echo err >&2; exit 3"}, std::chrono::seconds(20));
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
  CHECK(result.exit_code == 3);
  CHECK(flash::run_process({"printf", "%s|", "a b", "$HOME", "", ";"}, std::chrono::seconds(20)).output == "a b|$HOME||;|");
  const flash::ProcessResult missing = flash::run_process({"/no/such/program"}, std::chrono::seconds(5));
  CHECK(missing.exit_code == 127);
  CHECK(missing.error == "it cannot be started: No such file or directory\n");
}

TEST_CASE("process: a program that hangs or crashes is told") {
  CHECK(flash::run_process({"sleep", "100"}, std::chrono::milliseconds(100)).timed_out);
  CHECK(flash::run_process({"/bin/sh", "-c", "kill -SEGV $$"}, std::chrono::seconds(20)).signal == SIGSEGV);
}
