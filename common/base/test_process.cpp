// Child processes. How a program ends is for the tests of compare, in the rows of stages that crash or hang.
#include "common/base/process.hpp"

#include <doctest/doctest.h>

#include <chrono>

TEST_CASE("process: both streams, the exit code, no input, and arguments as they are, without a shell") {
  const flash::ProcessResult result =
      flash::run_process({"/bin/sh", "-c", "cat; echo out; echo err >&2; exit 3"}, std::chrono::seconds(20));
  CHECK(result.output == "out\n");
  CHECK(result.error == "err\n");
  CHECK(result.exit_code == 3);
  CHECK(flash::run_process({"printf", "%s|", "a b", "$HOME", "", ";"}, std::chrono::seconds(20)).output == "a b|$HOME||;|");
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
