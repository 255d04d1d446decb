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

TEST_CASE("process: more on both streams than a pipe holds") {
  const flash::ProcessResult result = shell("head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; head -c 7 /dev/zero >&2");
  CHECK(result.output.size() == 300000);
  CHECK(result.error.size() == 300007);
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
  CHECK(missing.exit_code == 127);
  CHECK(flash::complaint(missing) == "it cannot be started: No such file or directory");
}

TEST_CASE("process: a program that writes without end is stopped") {
  for (const char* endless : {"exec yes", "exec yes >&2"}) {
    const flash::ProcessResult result = shell(endless);
    CHECK(result.signal == SIGKILL);
    CHECK_FALSE(result.timed_out);
    CHECK(result.output.empty());
    CHECK(flash::complaint(result) == "it wrote more than 64 MiB");
  }
  flash::Conversation talk({"/bin/sh", "-c", "exec yes >&2"});
  CHECK(talk.ask("hello", std::chrono::seconds(20)).signal == SIGKILL);
  CHECK_FALSE(talk.runs());
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

TEST_CASE("process: a conversation in which the program ends, hangs or is not there goes on with a new process") {
  using std::chrono::milliseconds;
  flash::Conversation talk({"/bin/sh", "-c",
                            "while read line; do case $line in exit) echo why >&2; exit 3;; die) kill -9 $$;; "
                            "hang) echo half | tr -d '\\n'; exec sleep 100;; "
                            "*) head -c 300000 /dev/zero | tr '\\0' x >&2; echo \"$line\";; esac; done"});
  const auto still_answers = [&] {
    const flash::ProcessResult result = talk.ask("hello", milliseconds(20000));
    CHECK(result.output == "hello\n");
    CHECK(result.exit_code == 0);
    CHECK(result.error.size() <= 300000);  // more than a pipe holds
  };
  still_answers();
  flash::ProcessResult result = talk.ask("exit", milliseconds(20000));
  CHECK(result.exit_code == 3);
  CHECK(result.error.ends_with("why\n"));
  CHECK_FALSE(talk.runs());
  still_answers();
  CHECK(talk.ask("die", milliseconds(20000)).signal == SIGKILL);
  still_answers();
  result = talk.ask("hang", milliseconds(300));
  CHECK(result.timed_out);
  CHECK_FALSE(talk.runs());
  still_answers();
  flash::Conversation none({"/no/such/program"});
  result = none.ask("hello", milliseconds(20000));
  CHECK(result.exit_code == 127);
  CHECK_FALSE(none.runs());

  flash::Conversation deaf({"/bin/sh", "-c", "read line; exec <&-; echo \"$line\"; sleep 0.3; exit 4"});
  CHECK(deaf.ask("hello", milliseconds(20000)).output == "hello\n");
  CHECK(deaf.ask("hello", milliseconds(20000)).exit_code == 4);  // a write to it does not end this program
}
