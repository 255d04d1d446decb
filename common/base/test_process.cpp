// Child processes: output, exit codes, signals, time limits.
#include "common/base/process.hpp"

#include <doctest/doctest.h>

#include <csignal>

namespace {

flash::ProcessResult shell(const std::string& code, int milliseconds = 20000) {
  return flash::run_process({"/bin/sh", "-c", code}, std::chrono::milliseconds(milliseconds));
}

}  // namespace

TEST_CASE("process: both streams and the exit code") {
  const flash::ProcessResult result = shell("echo out; echo err >&2; exit 3");
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
  CHECK(result.exit_code == 3);
  CHECK(result.signal == 0);
  CHECK_FALSE(result.timed_out);
}

TEST_CASE("process: arguments reach the program as they are, without a shell") {
  CHECK(flash::run_process({"printf", "%s|", "a b", "$HOME", "", ";"}, std::chrono::seconds(20)).output == "a b|$HOME||;|");
}

TEST_CASE("process: a program that reads its input finds none") {
  CHECK_FALSE(flash::run_process({"cat"}, std::chrono::seconds(5)).timed_out);
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

  const flash::ProcessResult missing = flash::run_process({"/no/such/program"}, std::chrono::seconds(5));
  CHECK(missing.exit_code == 127);
  CHECK(flash::complaint(missing) == "it cannot be started: No such file or directory");
}

TEST_CASE("process: a conversation is one process, which answers a line by a line") {
  flash::Conversation talk({"/bin/sh", "-c", "while read line; do echo \"$$ $line\"; done"});
  CHECK_FALSE(talk.runs());
  const std::string first = talk.ask("a b", std::chrono::seconds(20)).output,
                    second = talk.ask("", std::chrono::seconds(20)).output;
  CHECK(talk.runs());
  CHECK(first.ends_with(" a b\n"));
  CHECK(second == first.substr(0, first.find(' ')) + " \n");
}

TEST_CASE("process: a conversation in which the program ends or hangs goes on with a new process") {
  using std::chrono::milliseconds;
  flash::Conversation talk({"/bin/sh", "-c",
                            "while read line; do case $line in exit) echo why >&2; exit 3;; "
                            "hang) echo half | tr -d '\\n'; exec sleep 100;; *) echo said >&2; echo \"$line\";; esac; done"});
  const auto still_answers = [&] {
    for (int i = 0; i < 2; ++i) {
      const flash::ProcessResult result = talk.ask("hello", milliseconds(20000));
      CHECK(result.output == "hello\n");
      CHECK(result.error == "said\n");
      CHECK(result.exit_code == 0);
    }
  };
  still_answers();
  flash::ProcessResult result = talk.ask("exit", milliseconds(20000));
  CHECK(result.exit_code == 3);
  CHECK(result.error == "why\n");
  CHECK_FALSE(talk.runs());
  still_answers();
  result = talk.ask("hang", milliseconds(300));
  CHECK(result.timed_out);
  CHECK_FALSE(talk.runs());
  still_answers();

  flash::Conversation deaf({"/bin/sh", "-c", "read line; exec <&-; echo \"$line\"; sleep 0.3; exit 4"});
  CHECK(deaf.ask("hello", milliseconds(20000)).output == "hello\n");
  CHECK(deaf.ask("hello", milliseconds(20000)).exit_code == 4);  // a write to it does not end this program
}
