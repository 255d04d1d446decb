// The comparison program among good and bad stage programs.
#include "common/base/process.hpp"
#include "common/compare/test/fake_stages.hpp"
#include "common/harness/test/lines.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace {

using namespace flash::test;
using flash::ProcessResult;
using Json = nlohmann::json;

/// The report with the check turned into a failure, as a stage prints NaN.
std::string failed_report() {
  Json report = Json::parse(passed_report());
  report["check"]["passed"] = false;
  report["check"]["tensors"]["o"]["max_abs"] = nullptr;
  return report.dump();
}

}  // namespace

TEST_CASE("compare: one table with counts on the CPU") {
  const FakeStages stages;
  stages.add("02_second", prints(passed_report()));
  stages.add("01_first", prints(passed_report()));
  stages.add_raw("notes.txt", "");
  stages.add_raw("03_data.txt", "");
  const ProcessResult result = compare_on_cpu(stages);
  CHECK_MESSAGE(result.exit_code == 0, result.error);
  const std::string& table = result.output;
  CHECK(contains(table, "forward, B=1 H=2 Hkv=2 Nq=256 Nk=256 d=64 causal"));
  CHECK(contains(table, "not times"));
  CHECK_FALSE(contains(table, "TFLOP/s"));
  CHECK(table.find("01_first/plain") < table.find("02_second/plain"));
  for (const char* cell : {"2.0 KiB", "3.0 KiB", "1.0 KiB", "1,234", "1.5e-06", "ok"}) {
    CAPTURE(cell);
    CHECK(contains(table, cell));
  }
  CHECK(contains(result.error, "forward 01_first/plain ... ok"));
  CHECK_FALSE(contains(table, "FAILED"));
}

TEST_CASE("compare: bytes predicted beside bytes counted, where any stage predicts them") {
  const FakeStages stages;
  Json report = Json::parse(passed_report());
  report["predicted"] = {{"read_bytes", 5120}, {"written_bytes", 6144}};
  stages.add("01_first", prints(passed_report()));
  CHECK_FALSE(contains(compare_on_cpu(stages).output, "predicted"));
  stages.add("02_second", prints(report.dump()));
  const std::string table = words(compare_on_cpu(stages, {"--wide"}).output);
  CHECK_MESSAGE(contains(table, "- 3.0 KiB - 1.0 KiB"), table);
  CHECK_MESSAGE(contains(table, "5.0 KiB 3.0 KiB 6.0 KiB 1.0 KiB"), table);
  const std::string csv = compare_on_cpu(stages, {"--csv"}).output;
  CHECK_MESSAGE(contains(csv, ",predicted.read_bytes,hbm_read_bytes,predicted.written_bytes,hbm_written_bytes,"), csv);
  CHECK_MESSAGE(contains(csv, ",5120,3072,6144,1024,"), csv);
  CHECK_MESSAGE(contains(csv, ",1.5e-06,ok,\"an idea, with a comma\","), csv);  // max_error, which no row says by itself
}

TEST_CASE("compare: a failing child is a row, and the exit code is 1") {
  const FakeStages stages;
  stages.add("01_good", prints(passed_report()));
  std::string verdict, message;
  SUBCASE("wrong result") {
    stages.add("02_bad", prints(failed_report(), 1));
    verdict = "WRONG";
    message = "not finite";
  }
  SUBCASE("stopped by the simulator") {
    stages.add("02_bad", "echo '02_bad: race in kernel' >&2; exit 1");
    verdict = "STOPPED";
    message = "02_bad/plain: 02_bad: race in kernel";
  }
  SUBCASE("crash") {
    stages.add("02_bad", "kill -SEGV $$");
    verdict = "CRASHED";
    message = "ended by signal 11";
  }
  SUBCASE("time-out") {
    stages.add("02_bad", "exec sleep 100");
    verdict = "TIMED OUT";
  }
  SUBCASE("no report") {
    stages.add("02_bad", "echo nonsense");
    verdict = "CRASHED";
  }
  SUBCASE("odd exit code") {
    stages.add("02_bad", "exit 42");
    verdict = "CRASHED";
  }
  const ProcessResult result = compare_on_cpu(stages, {"--time-limit", "2"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.output, verdict));
  CHECK(contains(result.output, message));
  CHECK(contains(result.output, "FAILED"));
  CHECK(contains(result.output, "01_good/plain"));  // the others still run
}

TEST_CASE("compare: a refusal or too little memory is a row but no failure") {
  const FakeStages stages;
  stages.add("01_good", prints(passed_report()));
  stages.add("02_small", "echo '02_small: only d = 64' >&2; exit 2");
  stages.add("03_big", "echo '03_big: needs 4 EiB' >&2; exit 3");
  const ProcessResult result = compare_on_cpu(stages);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.output, "refused"));
  CHECK(contains(result.output, "02_small/plain: 02_small: only d = 64"));
  CHECK(contains(result.output, "cannot run"));
  CHECK(compare_on_cpu(stages, {"--only", "02"}).exit_code == 2);
  CHECK(compare_on_cpu(stages, {"--only", "03"}).exit_code == 3);
}

TEST_CASE("compare: rounds take turns, and the median is that of their medians") {
  const FakeStages stages;  // a run takes as many milliseconds as there have been runs, the probe for a GPU among them
  const std::string count = (stages.path() / "count").string(), log = (stages.path() / "log").string();
  stages.add("01_first", answers("n=$(cat " + count + " 2>/dev/null || echo 0); n=$((n + 1)); echo $n > " + count +
                                 "; echo \"$Nq $*\" >> " + log +
                                 "; time=', \"tflops\": 12, \"time\": {\"median_ms\": '$n', \"min_ms\": '$n', \"max_ms\": "
                                 "'$n', \"iterations\": 20}'"));
  const std::string file = (stages.path() / "rows.json").string();
  const auto rounds = [&](const Strings& more) {
    const ProcessResult result = compare(stages, joined({"--pass", "forward", "--batch", "1", "--heads", "1", "--no-counts",
                                                         "--save", file, "--sweep", "seq=8,16"},
                                                        more));
    CHECK_MESSAGE(result.exit_code == 0, result.error);
    return Json::parse(read_bytes(file));
  };
  Json rows = rounds({"--rounds", "3"});
  CHECK(rows[0]["time"]["rounds_ms"] == Json({2.0, 4.0, 6.0}));
  CHECK(rows[1]["time"]["rounds_ms"] == Json({3.0, 5.0, 7.0}));
  CHECK(rows[0]["time"]["median_ms"] == 4.0);
  CHECK(rows[0]["time"]["min_ms"] == 2.0);
  CHECK(rows[0]["time"]["max_ms"] == 6.0);
  CHECK(rows[0]["tflops"] == 6.0);  // 12 in 2 ms
  CHECK(rows[0]["check"]["passed"] == true);
  rows = rounds({"--rounds", "4", "--resume"});  // 8 is the probe
  CHECK(rows[0]["time"]["rounds_ms"] == Json({2.0, 4.0, 6.0, 9.0}));
  CHECK(rows[0]["time"]["median_ms"] == 5.0);
  check_refused(compare({"--rounds", "2", "--tune"}), "--rounds and --tune are both given");
  check_refused(compare({"--rounds", "2", "--device", "cpu"}), "--rounds and --device cpu are both given");
}

TEST_CASE("compare: times on a GPU, bytes from the simulator for one head group") {
  const FakeStages stages;
  Json gpu = Json::parse(passed_report());
  gpu.erase("counters");
  gpu["device"] = {{"kind", "gpu"}, {"name", "Test GPU"}};
  gpu["time"] = {{"median_ms", 0.125}, {"min_ms", 0.1}, {"max_ms", 0.2}, {"iterations", 5}, {"cold_l2", true}};
  gpu["tflops"] = 12.5;
  gpu["percent_of_peak"] = 25;
  // The simulator is asked for one batch, the two query heads of one key/value head, and gets no time.
  stages.add("01_first", "case \"$*\" in *'--device gpu'*) " + prints(gpu.dump()) + ";; *'--device cpu'*--bench*) exit 9;; " +
                             "*'--batch 1 --heads 2 --kv-heads 1'*) " + prints(passed_report()) + ";; esac; exit 8");
  const ProcessResult result =
      compare(stages, {"--pass", "forward", "--json", "--batch", "3", "--heads", "4", "--kv-heads", "2", "--seq", "64"});
  CHECK_MESSAGE(result.exit_code == 0, result.error);
  const Json row = Json::parse(result.output).at(0);
  CHECK(row.at("hbm_read_bytes") == 3072 * 3 * 2);
  CHECK(row.at("hbm_written_bytes") == 1024 * 3 * 2);
  const std::string table = compare(stages, {"--pass", "forward", "--heads", "2", "--kv-heads", "1", "--seq", "64"}).output;
  for (const char* cell : {"Test GPU", "median", "0.125", "TFLOP/s", "12.5", "% of", "25"}) {
    CAPTURE(cell);
    CHECK(contains(table, cell));
  }
  CHECK_FALSE(contains(table, "barriers"));
}

TEST_CASE("compare: --device gpu without one") {
  const FakeStages stages;
  stages.add("01_first",
             "case \"$*\" in *'--device gpu'*) echo '01_first: no GPU answers' >&2; exit 3;; esac\n" + prints(passed_report()));
  const ProcessResult gpu = compare(stages, {"--device", "gpu"});
  CHECK(gpu.exit_code == 3);
  CHECK(contains(gpu.error, "no GPU answers"));
  CHECK(compare(stages, {"--device", "auto"}).exit_code == 0);
}

TEST_CASE("compare: JSON, CSV and saved rows") {
  const FakeStages stages;
  stages.add("01_first", prints(passed_report()), both_passes);
  stages.add("02_bad", "exit 42");
  const std::string file = (stages.path() / "rows.json").string();
  const ProcessResult result = compare(stages, {"--device", "cpu", "--json", "--save", file});
  const Json rows = Json::parse(result.output);
  CHECK(rows.size() == 3);  // two forward, one backward
  CHECK(rows == Json::parse(read_bytes(file)));
  CHECK_FALSE(std::filesystem::exists(file + ".part"));
  const Json& row = rows.at(0);
  CHECK(row.at("stage") == "01_first");
  CHECK(row.at("verdict") == "ok");
  CHECK(row.at("hbm_read_bytes") == 3072);
  CHECK(row.at("date").get<std::string>().size() == 20);
  CHECK(row.contains("commit"));
  const Json blob = row.at("sources").at("01_naive/kernel.cuh");  // null only where git is missing
  CHECK((blob.is_null() || blob.get<std::string>().size() == 40));
  CHECK(rows.at(1).at("verdict") == "CRASHED");
  CHECK(rows.at(1).at("problem").at("seq_q") == 256);
  CHECK(rows.at(2).at("pass") == "backward");

  const std::string csv = compare_on_cpu(stages, {"--csv"}).output;
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 3);
  CHECK(csv.starts_with("date,commit,stage,variant,pass,"));
  CHECK(contains(csv, "\"an idea, with a comma\""));
}

TEST_CASE("compare: a step of the backward pass has no row in the forward table of a stage that has steps for it") {
  const FakeStages stages;
  const auto add = [&](const char* first_passes) {
    stages.add_variants("01_both", listed("first", first_passes) + "," + listed("second", both_passes),
                        prints(passed_report()));
  };
  add(forward);
  const std::string both = compare(stages, {"--device", "cpu"}).output;
  CHECK(contains(both.substr(0, both.find("backward,")), "01_both/first"));
  CHECK_FALSE(contains(both.substr(0, both.find("backward,")), "01_both/second"));
  CHECK(contains(both.substr(both.find("backward,")), "01_both/second"));
  CHECK(contains(compare_on_cpu(stages, {"--variant", "second"}).output, "01_both/second"));
  CHECK(compare(stages, {"--device", "cpu", "--variant", "last"}).output == both);  // there are two, of a pass each
  add(both_passes);                                                                 // here the forward pass is nobody else's
  CHECK(contains(compare_on_cpu(stages).output, "01_both/second"));
  const std::string last = compare_on_cpu(stages, {"--variant", "last"}).output;
  CHECK(contains(last, "01_both/second"));
  CHECK_FALSE(contains(last, "01_both/first"));
}

TEST_CASE("compare: bad usage and nothing to run give exit code 2 and one line") {
  const FakeStages empty, stages, liar;
  stages.add("01_first", prints(passed_report()));
  liar.add_raw("01_liar", "echo hello");
  check_refused(compare(empty, {}), "no stage programs (NN_name) in '");
  check_refused(compare(liar, {}), "does not answer --list --json as a stage program does");
  const std::vector<Strings> cases{{"--only", "07"},
                                   {"--only", ","},
                                   {"--variant", ","},
                                   {"--variant", "plain,no-such-variant"},
                                   {"--sweep", "seq"},
                                   {"--sweep", "seq=16..8"},
                                   {"--sweep", "seq=0..8"},
                                   {"--sweep", "width=1..8"},
                                   {"--sweep", "seq=1..8", "--seq", "4"},
                                   {"--sweep", "seq=1..99999999999"},
                                   {"--seq", "0"},
                                   {"--heads", "6", "--kv-heads", "4"},
                                   {"--causal", "--no-causal"},
                                   {"--json", "--csv"},
                                   {"--wide", "--csv"},
                                   {"--iterations", "5"},
                                   {"--no-counts"},
                                   {"--bin", "/no/such/folder"},
                                   {"--save", "/dev/null/x"},
                                   {"--save", ""},
                                   {"--bin", ""},
                                   {"--time-limit", "0"},
                                   {"--pass", "both"},
                                   {"--device", "tpu"},
                                   {"--dtype", "bf16"},  // no stage here takes it
                                   {"--only", "0\n7"},
                                   {"--save", "/dev/null/x\ny"},
                                   {"--frob\nnicate"},
                                   {"--frobnicate"}};
  for (const Strings& arguments : cases) {
    CAPTURE(arguments.front());
    check_refused(compare(stages, arguments.back() == "tpu" ? arguments : joined({"--device", "cpu"}, arguments)), "compare: ");
  }
  stages.add("02_second", prints(passed_report()));  // with a variant of the same name
  CHECK(compare(stages, {"--device", "cpu", "--variant", "nope"}).error == "compare: --variant has 'nope'; allowed: plain\n");
  const std::string help = compare(stages, {"--help"}).output;
  CHECK(contains(help, "Query heads (default: 2, on a GPU 12)"));
  CHECK_MESSAGE(longest_line(help) <= 80, help);
}
