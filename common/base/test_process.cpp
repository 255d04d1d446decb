// Child processes: output, exit codes, signals, time limits.
#include "common/base/process.hpp"

#include <doctest/doctest.h>

#include <csignal>

namespace {

flash::ProcessResult shell(const std::string& code, int milliseconds = 20000) {
  return flash::run_process({"/bin/sh", "-c", code}, std::chrono::milliseconds(milliseconds));
}

}  // namespace

TEST_CASE("process: both streams, the exit code, no input, and arguments as they are, without a shell") {
  const flash::ProcessResult result = shell("cat; echo out; echo err >&2; exit 3");
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
  CHECK(result.exit_code == 3);
  CHECK(result.signal == 0);
  CHECK_FALSE(result.timed_out);
  CHECK(flash::run_process({"printf", "%s|", "a b", "$HOME", "", ";"}, std::chrono::seconds(20)).output == "a b|$HOME||;|");
}

TEST_CASE("process: a signal, a time-out and a missing program are told apart") {
  const flash::ProcessResult killed = shell("kill -SEGV $$");
  CHECK(killed.signal == SIGSEGV);
  CHECK_FALSE(killed.timed_out);

  const auto before = std::chrono::steady_clock::now();
  CHECK(shell("echo early; exec sleep 100", 300).timed_out);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(50));

  const flash::ProcessResult missing = flash::run_process({"/no/such/program"}, std::chrono::seconds(5));
  CHECK(missing.exit_code == 127);
  CHECK(flash::complaint(missing) == "it cannot be started: No such file or directory");
}

TEST_CASE("process: a conversation is one process, and goes on with a new one when that ends or hangs") {
  using std::chrono::milliseconds;
  flash::Conversation talk({"/bin/sh", "-c",
                            "while read line; do case $line in exit) echo why >&2; exit 3;; "
                            "hang) printf half; exec sleep 100;; *) echo said >&2; echo \"$$ $line\";; esac; done"});
  const flash::ProcessResult ended = talk.ask("exit", milliseconds(20000));
  CHECK(ended.exit_code == 3);
  CHECK(ended.error == "why\n");
  CHECK_FALSE(talk.runs());
  CHECK(talk.ask("hang", milliseconds(300)).timed_out);
  const std::string first = talk.ask("a b", milliseconds(20000)).output;
  const flash::ProcessResult second = talk.ask("", milliseconds(20000));
  CHECK(talk.runs());
  CHECK(first.ends_with(" a b\n"));
  CHECK(second.output == first.substr(0, first.find(' ')) + " \n");
  CHECK(second.error == "said\n");

  flash::Conversation deaf({"/bin/sh", "-c", "read line; exec <&-; echo \"$line\"; sleep 0.3; exit 4"});
  CHECK(deaf.ask("hello", milliseconds(20000)).output == "hello\n");
  CHECK(deaf.ask("hello", milliseconds(20000)).exit_code == 4);  // a write to it does not end this program
}
