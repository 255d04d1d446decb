// The problems of a sweep.
#include "common/compare/sweep.hpp"
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

namespace {

using namespace flash::test;
using flash::ProcessResult;

/// "seq_q x head_dim x batch x heads" of all problems.
Strings sizes(const Strings& sweeps, std::optional<std::int64_t> tokens = {}, std::optional<std::int64_t> width = {}) {
  flash::ProblemSet set;
  set.tokens = tokens;
  set.width = width;
  for (const std::string& text : sweeps) set.sweeps.push_back(flash::parse_sweep(text));
  Strings all;
  const flash::RequestedSizes defaults{.batch = 3, .heads = 4, .kv_heads = 0, .seq_q = 32, .seq_k = 32, .head_dim = 16};
  for (const flash::Case& task : flash::all_cases(set, defaults)) {
    const flash::FullProblem& p = task.problem;
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
  CHECK(sizes({"seq=5,10,20"}) == Strings{"5x16x3x4 fp32", "10x16x3x4 fp32", "20x16x3x4 fp32"});
  CHECK(sizes({"seq=7,5"}) == Strings{"7x16x3x4 fp32", "5x16x3x4 fp32"});
  CHECK(sizes({"d=8,4", "causal=no,yes", "batch=1,2"}) ==
        Strings{"32x8x1x4 fp32", "32x8x2x4 fp32", "32x8x1x4 causal fp32", "32x8x2x4 causal fp32",  //
                "32x4x1x4 fp32", "32x4x2x4 fp32", "32x4x1x4 causal fp32", "32x4x2x4 causal fp32"});
  CHECK(sizes({"dtype=bf16,fp16", "heads=2"}) == Strings{"32x16x3x2 bf16", "32x16x3x2 fp16"});
}

TEST_CASE("sweep: --tokens and --width give batch and heads, never less than one") {
  CHECK(sizes({"seq=8,16,32"}, 16) == Strings{"8x16x2x4 fp32", "16x16x1x4 fp32", "32x16x1x4 fp32"});
  CHECK(sizes({"d=8,16,100"}, {}, 48) == Strings{"32x8x3x6 fp32", "32x16x3x3 fp32", "32x100x3x1 fp32"});
  CHECK(sizes({}, 100, 32) == Strings{"32x16x3x2 fp32"});
}

TEST_CASE("sweep: bad values give exit code 2 and one line before anything runs") {
  const FakeStages stages(answers("echo run >> $log"));
  check_refused_each(
      stages, {"--sweep seq", "--sweep seq=0,8", "--sweep width=1,8", "--sweep seq=99999999999", "--sweep seq=8..16",
               "--sweep seq=1,", "--sweep seq=", "--sweep seq=1,x", "--sweep seq=4,5,4", "--sweep d=1,257",
               "--sweep causal=maybe", "--sweep causal=yes,yes", "--sweep dtype=fp8", "--sweep seq=1,8 extra", "--tokens 0"});
  check_refused_each(
      stages,
      {"--sweep seq=1,8 --sweep seq=2", "--sweep seq=1,8 --seq 4", "--sweep seq=1,8 --seq-k 2", "--sweep d=1,8 --head-dim 2",
       "--sweep causal=no --no-causal", "--sweep causal=no --causal", "--sweep dtype=fp32 --dtype fp32",
       "--tokens 64 --batch 2", "--tokens 64 --sweep batch=1,2", "--width 64 --heads 2", "--width 64 --sweep heads=1,2"},
      " are both given; allowed: one of them");
  check_refused_each(stages, {"--sweep heads=4,6 --kv-heads 4"}, "--heads 6 with --kv-heads 4");
  CHECK(stages.logged().empty());
}

TEST_CASE("sweep: one dtype for all rows, fp32 unless given, and the stages left out for it are named once") {
  const FakeStages stages;
  stages.add("01_single", answers("[ $dtype = fp32 ] || exit 9"));
  stages.add("02_half", answers(), forward, R"("fp16", "bf16")");
  const std::string file = stages.file("rows.jsonl");
  const auto check = [&](const Strings& arguments, const Strings& rows, const std::string& left_out) {
    std::filesystem::remove(file);
    const ProcessResult result = good(compare_on_cpu(stages, joined({"--save", file}, arguments)));
    Strings found;
    for (const Json& row : rows_in(file)) {
      found.push_back(row["stage"].get<std::string>().substr(3) + " " + row["problem"]["dtype"].get<std::string>());
    }
    CHECK(found == rows);
    CHECK_MESSAGE(contains(result.error, "precision\n" + left_out + (rows.size() > 1 ? "B=" : "[1/1]")), result.error);
  };
  const std::string of_fp32 = "left out: 02_half, which does not take fp32\n";
  check({}, {"single fp32"}, of_fp32);
  check({"--dtype", "fp16"}, {"half fp16"}, "left out: 01_single, which does not take fp16\n");
  check({"--sweep", "seq=8,16", "--sweep", "dtype=fp32,fp16"}, {"single fp32", "half fp16", "single fp32", "half fp16"},
        "left out: 01_single, which does not take fp16\n" + of_fp32);
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
