// What past runs tell about those to come, and how it is shown.
#include "common/compare/progress.hpp"
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <thread>

namespace {

using namespace flash;

/// Runs of two variants over all lengths, without a mask: the FLOPs grow with the square.
struct Runs {
  Stage stage{"01_stage", {}, {{"slow", "", "", {}, {}}, {"fast", "", "", {}, {}}}};
  std::vector<Case> cases;

  Runs() { cases = all_cases({{}, {parse_sweep("dtype=fp16,bf16"), parse_sweep("seq=64..4096")}, {}, {}}, {}); }

  Run operator()(const std::string& variant, int Nq, Pass pass = Pass::forward, Dtype dtype = Dtype::fp16) const {
    for (const Case& task : cases) {
      if (task.problem.Nq == Nq && task.problem.dtype == dtype) {
        return {&stage, &stage.variants[variant == "slow" ? 0 : 1], pass, &task};
      }
    }
    throw std::logic_error("no such length");
  }
};

Row ended(Verdict verdict, const std::string& message = "") {
  Row row;
  row.verdict = verdict;
  row.message = message;
  return row;
}

Row took(double seconds) {
  Row row;
  row.report["wall_s"] = seconds;
  return row;
}

}  // namespace

TEST_CASE("history: seconds grow with the FLOPs from the most similar run, on top of what every run takes") {
  const Runs runs;
  History history(std::chrono::seconds(1000));
  CHECK_FALSE(history.seconds(runs("slow", 64)));
  history.add(runs("fast", 64), took(1));
  CHECK(*history.seconds(runs("fast", 128)) == 1);  // all of it may be start-up
  history.add(runs("slow", 128), took(3));
  CHECK(*history.seconds(runs("slow", 256)) == doctest::Approx(1 + 2 * 4));
  CHECK(*history.seconds(runs("slow", 64)) == doctest::Approx(1 + 2 / 4.0));
  history.add(runs("slow", 512), took(21));
  CHECK(*history.seconds(runs("slow", 1024)) == doctest::Approx(1 + 20 * 4));  // not from the run of 128
  // A type that has not run yet: from the other one. A pass that has not run yet: from the other one.
  CHECK(*history.seconds(runs("slow", 1024, Pass::forward, Dtype::bf16)) == doctest::Approx(81));
  CHECK(*history.seconds(runs("slow", 512, Pass::backward)) == doctest::Approx(1 + 20 * 2.5));
  history.add(runs("fast", 256, Pass::backward), took(2));
  CHECK(*history.seconds(runs("slow", 256, Pass::backward)) == doctest::Approx(2));  // another variant's, but the same pass
  CHECK(*history.seconds(runs("slow", 1024, Pass::backward)) == doctest::Approx(1 + 1 * 16));
  history.add(runs("slow", 128, Pass::forward, Dtype::bf16), took(2));
  CHECK(*history.seconds(runs("slow", 256, Pass::forward, Dtype::bf16)) == doctest::Approx(1 + 1 * 4));  // not the other type's
}

TEST_CASE("history: peers, which are started once, say nothing about what a stage takes to start") {
  const Runs runs;
  const Stage peers{peers_name, {}, {{"flash", "", "", {}, {}}}};
  Run peer = runs("fast", 64);
  peer.stage = &peers;
  peer.variant = &peers.variants.front();
  History history(std::chrono::seconds(1000));
  history.add(runs("slow", 128), took(3));
  history.add(peer, took(0.01));
  CHECK(*history.seconds(runs("slow", 256)) == 3);  // all of it may be start-up
}

TEST_CASE("history: a variant that never ran takes as long as the others together on average") {
  const Runs runs;
  History history(std::chrono::seconds(1000));
  history.add(runs("fast", 64), took(1));
  history.add(runs("fast", 256), took(5));
  history.add(runs("fast", 256), took(9));
  CHECK(*history.seconds(runs("slow", 256)) == doctest::Approx(7));
  CHECK_FALSE(history.counting_seconds(runs("slow", 256), 10));
  history.add_counting(runs("fast", 64), 10, 4);
  CHECK(*history.counting_seconds(runs("slow", 256), 10) == 4);
  CHECK(*history.seconds(runs("slow", 256)) == doctest::Approx(7));  // which counting has no part in
}

TEST_CASE("history: a refusal takes no time at the same head dimension") {
  const Runs runs;
  History history(std::chrono::seconds(1000));
  history.add(runs("slow", 64), ended(Verdict::refused));
  CHECK_FALSE(history.seconds(runs("fast", 64)));
  CHECK(*history.seconds(runs("slow", 128)) == 0);
  CHECK_FALSE(history.reason_to_skip(runs("slow", 128)));
}

TEST_CASE("history: what would exceed the time limit is skipped, but not on the word of short runs or of other variants") {
  const Runs runs;
  History history(std::chrono::seconds(600));
  history.add(runs("fast", 64), took(1));
  history.add(runs("slow", 64), took(3));
  CHECK(*history.seconds(runs("slow", 4096)) > 600);
  CHECK_FALSE(history.reason_to_skip(runs("slow", 4096)));  // 3 s may be anything but work
  history.add(runs("slow", 512), took(101));
  CHECK_FALSE(history.reason_to_skip(runs("slow", 1024)));  // 401 s
  const auto skip = history.reason_to_skip(runs("slow", 2048));
  REQUIRE(skip);
  CHECK(skip->too_long);
  CHECK(skip->message == "would take about 27 min; the limit is 10 min");
  CHECK_FALSE(history.reason_to_skip(runs("fast", 2048)));
  history.add(runs("slow", 2048, Pass::backward), took(900));
  CHECK_FALSE(history.reason_to_skip(runs("fast", 2048, Pass::backward)));
}

TEST_CASE("history: no room for a problem means none for one that is no smaller, of the same variant, pass and type") {
  const Runs runs;
  History history(std::chrono::seconds(600));
  history.add(runs("slow", 256), ended(Verdict::no_room, "needs 4 TiB"));
  CHECK_FALSE(history.reason_to_skip(runs("slow", 128)));
  CHECK_FALSE(history.reason_to_skip(runs("fast", 512)));
  CHECK_FALSE(history.reason_to_skip(runs("slow", 512, Pass::backward)));
  CHECK_FALSE(history.reason_to_skip(runs("slow", 512, Pass::forward, Dtype::bf16)));
  const auto skip = history.reason_to_skip(runs("slow", 512));
  REQUIRE(skip);
  CHECK_FALSE(skip->too_long);
  CHECK(test::contains(skip->message, "needs 4 TiB"));
  // Fewer heads, but more keys: the tensors are smaller, the scores are not, and nobody knows which of them had no room.
  const std::vector<Case> cases = all_cases({{}, {parse_sweep("dtype=fp16"), parse_sweep("seq=256,512")}, 512, {}}, {});
  Run small = runs("slow", 256), large = small;
  small.task = &cases[0];
  large.task = &cases[1];
  History of_tokens(std::chrono::seconds(600));
  of_tokens.add(large, ended(Verdict::no_room));
  CHECK_FALSE(of_tokens.reason_to_skip(small));
  History other(std::chrono::seconds(600));
  other.add(small, ended(Verdict::no_room));
  CHECK(other.reason_to_skip(large));
}

TEST_CASE("progress: durations") {
  CHECK(duration_text(3) == "3 s");
  CHECK(duration_text(119.4) == "119 s");
  CHECK(duration_text(125) == "2 min");
  CHECK(duration_text(600) == "10 min");
  CHECK(duration_text(9000) == "2.5 h");
}

TEST_CASE("progress: numbered lines for a log, plain ones for one problem") {
  const Runs runs;
  std::ostringstream lines, plain;
  Progress log(lines, Progress::Look::lines, 120), few(plain, Progress::Look::plain, 2);
  log.start(runs("slow", 64), 0, {});
  log.end(took(1));
  log.start(runs("fast", 64), 1, 200);
  log.end(ended(Verdict::no_room, "no\nroom"));
  log.start(runs("fast", 128), 2, 100);
  log.end(took(1));
  log.clear();
  CHECK(lines.str() ==
        "B=1 H=2 Hkv=2 Nq=64 Nk=64 d=64 fp16 bhnd bias=none\n"
        "[1/120] forward 01_stage/slow ... ok\n"
        "[2/120, about 3 min left] forward 01_stage/fast ... cannot run: no\\nroom\n"
        "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64 fp16 bhnd bias=none\n"
        "[3/120, about 100 s left] forward 01_stage/fast ... ok\n");
  few.start(runs("slow", 64), 0, 200);
  few.end(took(1));
  CHECK(plain.str() == "forward 01_stage/slow ... ok\n");
}

TEST_CASE("progress: a live line as wide as the terminal, with what went wrong above it") {
  const Runs runs;
  std::ostringstream out;
  const auto shown = [&] {  // since the last call
    const std::string text = out.str();
    out.str("");
    return text;
  };
  int columns = 200;
  Progress progress(out, Progress::Look::live, 4, [&] { return columns; });
  const Run run = runs("slow", 64);
  const std::string what = "forward 01_stage/slow, B=1 H=2 Hkv=2 Nq=64 Nk=64 d=64 fp16 bhnd bias=none";
  progress.start(run, 2, 100);
  CHECK(shown() == "\r\x1b[K[##########----------] 3 of 4, about 100 s left: " + what);
  progress.tick();  // no second has passed
  CHECK(shown().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(1001));
  progress.tick();
  CHECK(test::contains(shown(), "] 3 of 4, about 99 s left: "));
  progress.end(took(1));
  CHECK(shown().empty());
  columns = 41;
  progress.start(run, 3, 200);
  CHECK(shown() == "\r\x1b[K[###############-----] 4 of 4, about 3 m");
  progress.end(ended(Verdict::wrong));
  CHECK(shown() == "\r\x1b[K" + what + ": WRONG\n");
  progress.clear();
  CHECK(shown() == "\r\x1b[K");
}
