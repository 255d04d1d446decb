// The comparison program among good and bad stage programs.
#include "common/compare/test/fake_stages.hpp"
#include "common/harness/test/lines.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

using namespace flash::test;
using flash::ProcessResult;

TEST_CASE("compare: one table with counts on the CPU") {
  const FakeStages stages;
  stages.add("02_second", answers());
  stages.add("01_first", answers());
  stages.add_raw("notes.txt", "");
  stages.add_raw("03_data.txt", "");
  const ProcessResult result = good(compare_on_cpu(stages));
  const std::string& table = result.output;
  check_has(table, {"forward, B=1 H=2 Hkv=2 Nq=256 Nk=256 d=64 causal", "not times", "2.0 KiB", "4.0 KiB", "1,234", "ok"});
  CHECK_FALSE(contains(table, "TFLOP/s"));
  CHECK(table.find("01_first/plain") < table.find("02_second/plain"));
  CHECK(contains(result.error, "[1/2] forward 01_first/plain, "));
  CHECK_FALSE(contains(table, "FAILED"));
}

TEST_CASE("compare: whether the bytes are as predicted, where a stage predicts them") {
  const FakeStages stages(answers());
  const auto predict = [&](const std::string& stage, int written) {
    stages.add(stage,
               answers("more=', \"predicted\": {\"read_bytes\": 3072, \"written_bytes\": " + std::to_string(written) + "}'"));
  };
  const auto table = [&] { return compare_on_cpu(stages, {"--wide"}).output; };
  CHECK_FALSE(contains(table(), "predicted"));
  predict("01_first", 1024);
  predict("02_second", 6144);
  check_has(words(table()), {"3.0 KiB 1.0 KiB 4.0 KiB as predicted 1,234", "3.0 KiB 1.0 KiB 4.0 KiB not as predicted 1,234"});
}

TEST_CASE("compare: a failing child is a row, and the exit code is 1") {
  const std::vector<Strings> cases{
      {answers("code=1"), "WRONG", ""},
      {"echo '02_bad: race in kernel' >&2; exit 1", "STOPPED", "02_bad/plain: 02_bad: race in kernel"},
      {"kill -SEGV $$", "CRASHED", "ended by signal 11"},
      {"exec sleep 100", "TIMED OUT", ""},
      {"echo nonsense", "CRASHED", ""},
      {R"(echo '{"flops": "many"}')", "CRASHED", "its report is no row: 'flops' is \"many\"; allowed: number"},
      {"exit 42", "CRASHED", ""}};
  for (const Strings& bad : cases) {
    CAPTURE(bad.front());
    const FakeStages stages;
    stages.add("01_good", answers());
    stages.add("02_bad", bad.front());
    const ProcessResult result = compare_on_cpu(stages, {"--time-limit", "2"});
    CHECK(result.exit_code == 1);
    check_has(result.output, {bad[1], bad[2], "FAILED", "01_good/plain"});  // the others still run
  }
}

TEST_CASE("compare: a refusal or too little memory is a row but no failure") {
  const FakeStages stages;
  stages.add("01_good", answers());
  stages.add("02_small", "echo '02_small: only d = 64' >&2; exit 2");
  stages.add("03_big", "echo '03_big: needs 4 EiB' >&2; exit 3");
  const ProcessResult result = good(compare_on_cpu(stages));
  check_has(result.output, {"refused", "02_small/plain: 02_small: only d = 64", "cannot run"});
  CHECK(compare_on_cpu(stages, {"--only", "02"}).exit_code == 2);
  CHECK(compare_on_cpu(stages, {"--only", "03"}).exit_code == 3);
}

TEST_CASE("compare: rounds take turns, and the median is that of their medians") {
  const FakeStages stages;  // a run takes as many milliseconds as there have been runs, the probe for a GPU among them
  for (const char* name : {"01_first", "02_second"}) {
    stages.add(name, answers("echo run >> $log; n=$(wc -l < $log); more=', \"tflops\": 12, \"time\": {\"median_ms\": '$n', "
                             "\"min_ms\": '$n', \"max_ms\": '$n', \"iterations\": 20}'"));
  }
  const Json rows =
      rows_of(stages, {"--pass", "forward", "--batch", "1", "--heads", "1", "--rounds", "3", "--sweep", "seq=8,16"});
  CHECK(rows.size() == 4);  // each once
  CHECK(rows[0]["time"] == Json::parse(R"({"median_ms": 4.0, "min_ms": 2.0, "max_ms": 6.0, "iterations": 20,
                                           "rounds_ms": [2.0, 4.0, 6.0]})"));
  CHECK(rows[1]["time"]["rounds_ms"] == Json({3.0, 5.0, 7.0}));
  CHECK(rows[2]["time"]["rounds_ms"] == Json({8.0, 10.0, 12.0}));
  CHECK(rows[0]["tflops"] == 6.0);  // 12 in 2 ms
  CHECK(rows[0]["check"]["passed"] == true);
}

TEST_CASE("compare: times on a GPU, with the bytes that the stage predicts") {
  const FakeStages stages(
      answers("more=', \"time\": {\"median_ms\": 0.125}, \"tflops\": 12.5, \"percent_of_peak\": 25, "
              "\"predicted\": {\"read_bytes\": 4096, \"written_bytes\": 1024}'"));
  const std::string table = good(compare(stages, {"--pass", "forward"})).output;
  check_has(table, {"Test gpu", "median", "0.125", "TFLOP/s", "12.5", "5.0 KiB"});
  CHECK_FALSE(contains(table, "barriers"));
}

TEST_CASE("compare: --device gpu without one") {
  const FakeStages stages;
  stages.add("01_first", "case \"$*\" in *'--device gpu'*) echo '01_first: no GPU answers' >&2; exit 3;; esac\n" + answers());
  const ProcessResult gpu = compare(stages, {"--device", "gpu"});
  CHECK(gpu.exit_code == 3);
  CHECK(contains(gpu.error, "no GPU answers"));
  CHECK(compare(stages, {"--device", "auto"}).exit_code == 0);
}

TEST_CASE("compare: what a saved row says") {
  const FakeStages stages(answers(), both_passes);
  setenv("FLASH_COMMIT", "0123abcd", 1);  // of which the files may be a copy
  const Json rows = rows_of(stages, {"--device", "cpu"});
  unsetenv("FLASH_COMMIT");
  CHECK(rows.size() == 2);
  const Json& row = rows.at(0);
  CHECK(row.at("stage") == "01_first");
  CHECK(row.at("verdict") == "ok");
  CHECK(row.at("counters").at("read_bytes") == 3072);
  CHECK(row.at("date").get<std::string>().size() == 20);
  CHECK(row.at("commit") == "0123abcd");
  CHECK(row.at("sources").at("01_naive/kernel.cuh").get<std::string>().size() == 16);
  CHECK(rows.at(1).at("pass") == "backward");
  CHECK(rows_of(stages, {"--device", "cpu"})[0]["commit"] != "0123abcd");
}

TEST_CASE("compare: steps in the order of their files, those of the backward pass in its table alone") {
  const FakeStages stages;
  const auto variant = [](const std::string& name, const std::string& kernel, const char* passes) {
    return listed(name, passes, R"("fp32")", "01_both/" + kernel + ".cuh");
  };
  stages.add_variants("01_both",
                      variant("late", "hopper_backward/1_late", both_passes) + "," +
                          variant("first", "forward/1_first", forward) + "," +
                          variant("second", "backward/2_second", both_passes),
                      answers());
  const std::string both = good(compare(stages, {"--device", "cpu"})).output;
  const std::string before = both.substr(0, both.find("\nbackward,")), after = both.substr(before.size());
  CHECK(contains(before, "01_both/first"));
  CHECK_FALSE(contains(before, "01_both/second"));
  CHECK_FALSE(contains(after, "01_both/first"));
  CHECK(after.find("01_both/second") < after.find("01_both/late"));
  const std::string last = good(compare(stages, {"--device", "cpu", "--variant", "last"})).output;  // as the stage lists them
  check_has(last, {"01_both/first", "01_both/second"});
  CHECK_FALSE(contains(last, "01_both/late"));
}

TEST_CASE("compare: of options, the variants that take them, and in one line how many do not") {
  const FakeStages stages;
  const auto variant = [](const std::string& name, const std::string& more) {
    std::string json = listed(name, forward);
    return json.insert(json.size() - 1, ", " + more);
  };
  const std::string needy =
      R"("only_if_fastest": true, "takes": ["--window", "--bias-gradient"], "needs": ["--bias-gradient"])";
  stages.add_variants("01_many",
                      variant("plain", R"("takes": [])") + "," + variant("causal", R"("takes": ["--causal"])") + "," +
                          variant("rare", R"("only_if_fastest": true, "takes": ["--causal", "--window"])") + "," +
                          variant("gradient", needy),
                      answers());
  const ProcessResult usual = good(compare_on_cpu(stages));
  check_has(usual.output, {"01_many/causal"});
  CHECK_FALSE(contains(usual.output, "01_many/rare"));
  CHECK(contains(usual.error, "left out: 01_many/plain, not made for --causal\n"));
  const ProcessResult window = good(compare_on_cpu(stages, {"--no-causal", "--window", "16,0"}));
  check_has(window.output, {"01_many/rare"});
  CHECK_FALSE(contains(window.output, "01_many/plain"));
  CHECK_FALSE(contains(window.output, "01_many/gradient"));
  CHECK(contains(window.error, "left out: 2 variants, not made for --window\n"));
  check_refused(compare_on_cpu(stages, {"--softcap", "3", "--variant", "causal"}), "01_many/causal, not made for --softcap");
  check_refused(compare_on_cpu(stages, {"--variant", "gradient", "--no-causal"}), "made only for --bias-gradient");
}

TEST_CASE("compare: bad usage and nothing to run give exit code 2 and one line") {
  const FakeStages empty, stages, liar;
  stages.add("01_first", answers());
  liar.add_raw("01_liar", "echo hello");
  check_refused(compare(empty, {}), "no stage programs (NN_name) in '");
  check_refused(compare(liar, {}), "does not answer --list --json as a stage program does");
  for (const char* option : {"--save", "--bin"}) {
    check_refused(compare({option, ""}), std::string(option) + " is ''; allowed: a name");
  }
  check_refused(compare(stages, {"--device", "tpu"}), "--device is 'tpu'");
  check_refused(compare(stages, {"--resume"}), "--resume requires --save");
  check_refused(compare(stages, {"--causal", "--no-causal"}), "--causal excludes --no-causal");
  check_refused_each(stages, {"--only 07", "--only ,", "--variant ,", "--variant plain,no-such-variant", "--seq 0",
                              "--heads 6 --kv-heads 4", "--bin /no/such/folder", "--save /dev/null/x", "--time-limit 0",
                              "--pass both", "--dtype bf16",  // no stage here takes it
                              "--only 0\n7", "--save /dev/null/x\ny", "--frob\nnicate", "--frobnicate"});
  check_refused(compare({"--tune"}), "a stage's program has it");
  check_refused(compare({"--json"}), "--save");
  stages.add("02_second", answers());  // with a variant of the same name
  CHECK(compare(stages, {"--device", "cpu", "--variant", "nope"}).error == "compare: --variant has 'nope'; allowed: plain\n");
  const std::string help = compare(stages, {"--help"}).output;
  CHECK(contains(help, "Query heads (default: 2, on a GPU 12)"));
  CHECK_MESSAGE(longest_line(help) <= 80, help);
}

TEST_CASE("compare: what a stage program says of its list is handed on") {
  const FakeStages broken;
  broken.add_raw("01_broken", "echo 'its library is missing' >&2; exit 127");
  check_refused(compare(broken, {}), "01_broken --list --json does not answer: its library is missing");
  broken.add_raw("01_broken", "exec sleep 100");
  check_refused(compare(broken, {"--time-limit", "1"}), "01_broken --list --json does not answer: it took too long");
}
