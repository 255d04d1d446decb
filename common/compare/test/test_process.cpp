// Child processes: output, exit codes, signals, time limits.
#include "common/compare/process.hpp"

#include <doctest/doctest.h>

#include <csignal>

namespace {

flash::ProcessResult shell(const std::string& code, int milliseconds = 20000) {
  return flash::run_process({"/bin/sh", "-c", code}, std::chrono::milliseconds(milliseconds));
}

}  // namespace

TEST_CASE("process: both streams and the exit code") {
  const flash::ProcessResult result = shell("echo out; echo err >&2; exit 3");
  CHECK(result.started);
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
  CHECK(result.exit_code == 3);
  CHECK(result.signal == 0);
  CHECK_FALSE(result.timed_out);
}

TEST_CASE("process: arguments reach the program as they are, without a shell") {
  CHECK(flash::run_process({"printf", "%s|", "a b", "$HOME", "", ";"}, std::chrono::seconds(20)).output == "a b|$HOME||;|");
}

TEST_CASE("process: more on both streams than a pipe holds") {
  const flash::ProcessResult result = shell("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; head -c 7 /dev/zero >&2");
  CHECK(result.output.size() == 300000);
  CHECK(result.error.size() == 300007);
}

TEST_CASE("process: whoever waits is called several times a second") {
  int calls = 0;
  flash::run_process({"sleep", "0.5"}, std::chrono::seconds(20), [&] { ++calls; });
  CHECK(calls >= 3);
}

TEST_CASE("process: a signal, a time-out and a missing program are told apart") {
  const flash::ProcessResult killed = shell("kill -SEGV $$");
  CHECK(killed.signal == SIGSEGV);
  CHECK_FALSE(killed.timed_out);

  const auto before = std::chrono::steady_clock::now();
  const flash::ProcessResult slow = shell("echo early; exec sleep 100", 300);
  CHECK(slow.timed_out);
  CHECK(slow.output == "early\n");
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(50));

  const flash::ProcessResult closed = shell("exec >&- 2>&-; exec sleep 100", 300);  // closes its output and lives on
  CHECK(closed.timed_out);

  const flash::ProcessResult missing = flash::run_process({"/no/such/program"}, std::chrono::seconds(5));
  CHECK_FALSE(missing.started);
  CHECK_FALSE(missing.error.empty());
}
