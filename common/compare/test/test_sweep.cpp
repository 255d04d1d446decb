// The problems of a sweep, and which of their runs are skipped.
#include "common/compare/sweep.hpp"
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

#include <map>

namespace {

using namespace flash::test;
using flash::ProcessResult;

/// "seq_q x head_dim x batch x heads" of all problems.
Strings sizes(const Strings& sweeps, std::optional<std::int64_t> tokens = {}, std::optional<std::int64_t> width = {}) {
  flash::ProblemSet set{{}, {}, tokens, width};
  for (const std::string& text : sweeps) set.sweeps.push_back(flash::parse_sweep(text));
  Strings all;
  const flash::RequestedSizes defaults{.batch = 3, .heads = 4, .kv_heads = 0, .seq_q = 32, .seq_k = 32, .head_dim = 16};
  for (const flash::Case& task : flash::all_cases(set, defaults)) {
    const flash::Problem& p = task.problem;
    CHECK(task.sizes.batch == p.B);
    CHECK(p.H == p.Hkv);
    CHECK(p.scale == flash::default_scale(p.d));
    all.push_back(std::to_string(p.Nq) + "x" + std::to_string(p.d) + "x" + std::to_string(p.B) + "x" + std::to_string(p.H) +
                  (p.causal ? " causal " : " ") + to_string(p.dtype));
  }
  return all;
}

}  // namespace

TEST_CASE("sweep: all combinations, the first sweep outermost") {
  CHECK(sizes({}) == Strings{"32x16x3x4 fp32"});
  CHECK(sizes({"seq=5..21"}) == Strings{"5x16x3x4 fp32", "10x16x3x4 fp32", "20x16x3x4 fp32"});
  CHECK(sizes({"seq=7,5"}) == Strings{"7x16x3x4 fp32", "5x16x3x4 fp32"});
  CHECK(sizes({"d=8,4", "causal=no,yes", "batch=1..2"}) ==
        Strings{"32x8x1x4 fp32", "32x8x2x4 fp32", "32x8x1x4 causal fp32", "32x8x2x4 causal fp32",  //
                "32x4x1x4 fp32", "32x4x2x4 fp32", "32x4x1x4 causal fp32", "32x4x2x4 causal fp32"});
  CHECK(sizes({"dtype=bf16,fp16", "heads=2"}) == Strings{"32x16x3x2 bf16", "32x16x3x2 fp16"});
  CHECK(sizes({"head-dim=8"}) == sizes({"d=8"}));
}

TEST_CASE("sweep: --tokens and --width give batch and heads, never less than one") {
  CHECK(sizes({"seq=8..32"}, 16) == Strings{"8x16x2x4 fp32", "16x16x1x4 fp32", "32x16x1x4 fp32"});
  CHECK(sizes({"d=8,16,100"}, {}, 48) == Strings{"32x8x3x6 fp32", "32x16x3x3 fp32", "32x100x3x1 fp32"});
  CHECK(sizes({}, 100, 32) == Strings{"32x16x3x2 fp32"});
}

TEST_CASE("sweep: bad values give exit code 2 and one line before anything runs") {
  const FakeStages stages(answers("echo run >> $log"));
  check_refused_each(
      stages, {"--sweep seq", "--sweep seq=16..8", "--sweep seq=0..8", "--sweep width=1..8", "--sweep seq=1..99999999999",
               "--sweep seq=1,", "--sweep seq=", "--sweep seq=1,x", "--sweep seq=4,5,4", "--sweep d=1..257",
               "--sweep causal=maybe", "--sweep causal=yes,yes", "--sweep dtype=fp8", "--sweep seq=1..8 extra", "--tokens 0"});
  check_refused_each(stages,
                     {"--sweep seq=1..8 --sweep seq=2", "--sweep d=1..8 --sweep head-dim=2", "--sweep seq=1..8 --seq 4",
                      "--sweep seq=1..8 --seq-k 2", "--sweep d=1..8 --head-dim 2", "--sweep causal=no --no-causal",
                      "--sweep causal=no --causal", "--sweep dtype=fp32 --dtype fp32", "--tokens 64 --batch 2",
                      "--tokens 64 --sweep batch=1,2", "--width 64 --heads 2", "--width 64 --sweep heads=1,2"},
                     " are both given; allowed: one of them");
  check_refused_each(stages, {"--sweep dtype=fp32..bf16"}, "--sweep dtype is 'fp32..bf16'; allowed: fp32, fp16, bf16");
  check_refused_each(stages, {"--sweep seq=1..1024 --sweep batch=1..1024 --sweep heads=1..1024 --sweep d=1..128"},
                     "the sweeps together have 10648 problems or more; allowed: up to 10000");
  check_refused_each(stages, {"--sweep heads=4,6 --kv-heads 4"}, "--heads 6 with --kv-heads 4");
  CHECK(stages.logged().empty());
}

TEST_CASE("sweep: one dtype for all rows, fp32 unless given, and the stages left out for it are named once") {
  const FakeStages stages;
  stages.add("01_single", answers("[ $dtype = fp32 ] || exit 9"));
  stages.add("02_half", answers(), forward, R"("fp16", "bf16")");
  // The stages and dtypes of all rows; each of `lines` is said once.
  const auto check = [&](const Strings& arguments, const Strings& rows, const Strings& lines) {
    const ProcessResult result = good(compare_on_cpu(stages, joined({"--json"}, arguments)));
    Strings found;
    for (const Json& row : Json::parse(result.output)) {
      found.push_back(row["stage"].get<std::string>().substr(3) + " " + row["problem"]["dtype"].get<std::string>());
    }
    CHECK(found == rows);
    for (const std::string& line : lines) {
      const std::string said = "left out, since they do not take " + line + "\n";
      REQUIRE_MESSAGE(contains(result.error, said), result.error);
      CHECK(result.error.find(said) == result.error.rfind(said));
    }
  };
  check({}, {"single fp32"}, {"fp32: 02_half"});
  check({"--dtype", "fp16"}, {"half fp16"}, {"fp16: 01_single"});
  check({"--sweep", "seq=8,16", "--sweep", "dtype=fp32,fp16,bf16"},
        {"single fp32", "half fp16", "half bf16", "single fp32", "half fp16", "half bf16"},
        {"fp32: 02_half", "fp16: 01_single", "bf16: 01_single"});
}

TEST_CASE("sweep: after a variant found no room or took too long, no larger problem of it is tried") {
  const FakeStages stages;
  stages.add("01_roomy", answers());
  stages.add("02_large", answers("echo $Nq >> $log; [ $Nq -lt 64 ] || { echo '02_large: needs 4 TiB' >&2; exit 3; }"));
  stages.add("03_slow", answers("[ $Nq -lt 64 ] || exec sleep 100"));
  const ProcessResult result = good(
      compare_on_cpu(stages, {"--sweep", "seq=32,64,128,48,256", "--time-limit", "2", "--json"}));  // a smaller one finished
  CHECK(stages.logged() == "32 64 48 ");
  std::map<std::string, Strings> verdicts;
  for (const Json& row : Json::parse(result.output)) {
    verdicts[row["stage"]].push_back(row["verdict"]);
    if (row["verdict"] != "skipped") continue;
    CHECK_FALSE(row.contains("time"));
    CHECK(row["problem"]["seq_q"].get<int>() >= 128);
    CHECK(row["device"]["kind"] == "cpu");
    CHECK_FALSE(row["device"]["name"].get<std::string>().empty());
    const std::string message = row["message"];
    check_has(message, {"Nq=64 ", row["stage"] == "02_large" ? "needs 4 TiB" : "more than the limit of 2 s"});
  }
  CHECK(verdicts["01_roomy"] == Strings(5, "ok"));
  CHECK(verdicts["02_large"] == Strings{"ok", "cannot run", "skipped", "ok", "skipped"});
  CHECK(verdicts["03_slow"] == Strings{"ok", "TIMED OUT", "skipped", "ok", "skipped"});
  check_has(result.error,
            {"skipped 4 of 15 runs: 2 since a problem no larger could not run, 2 since they would take longer than "
             "2 s\n"});
  const ProcessResult table = compare_on_cpu(stages, {"--sweep", "seq=64,128", "--only", "02"});
  CHECK(table.exit_code == 3);
  check_has(table.output, {"skipped", "02_large/plain: a problem no larger could not run (B=1 H=2 Hkv=2 Nq=64 "});
}

TEST_CASE("sweep: a run that the time limit ended is a failure if its variant finished no problem in that pass") {
  const FakeStages stages;
  stages.add("01_slow", answers("{ [ $pass = forward ] && [ $Nq -lt 64 ]; } || exec sleep 100"), both_passes);
  const auto exit_code = [&](const char* lengths, const Strings& of_pass) {
    return compare(stages, joined({"--device", "cpu", "--sweep", lengths, "--time-limit", "1"}, of_pass)).exit_code;
  };
  CHECK(exit_code("seq=32,64", {"--pass", "forward"}) == 0);
  CHECK(exit_code("seq=64,128", {"--pass", "forward"}) == 1);
  CHECK(exit_code("seq=32,64", {}) == 1);  // the backward pass finished nothing
}

TEST_CASE("sweep: a run that would exceed the time limit by what smaller ones took is not started") {
  const FakeStages stages;
  stages.add("01_quick", answers());
  stages.add("02_slow", answers("echo $Nq >> $log; [ $Nq -lt 64 ] || sleep 0.6"));
  const ProcessResult result =
      good(compare_on_cpu(stages, {"--sweep", "seq=4,64,256", "--no-causal", "--time-limit", "6", "--json"}));
  CHECK(stages.logged() == "4 64 ");
  const Json rows = Json::parse(result.output);
  CHECK(rows.at(4).at("verdict") == "ok");  // 01_quick
  CHECK(rows.at(5).at("verdict") == "skipped");
  const std::string message = rows.at(5).at("message");
  CHECK_MESSAGE(message.starts_with("would take about "), message);
  CHECK_MESSAGE(message.ends_with("; the limit is 6 s"), message);
}

TEST_CASE("sweep: on a GPU the time left has that of the simulator's counts") {
  const FakeStages stages(answers("[ $device$Nq != cpu16 ] || sleep 0.3"));
  const std::string log =
      compare(stages, {"--pass", "forward", "--batch", "1", "--heads", "1", "--sweep", "seq=8,16,128"}).error;
  CHECK_MESSAGE(contains(log, "[3/3, about "), log);
  CHECK_FALSE(contains(log, "[3/3, about 1 s left]"));  // but 64 times 0.3 s
}
