// --save appends rows to a file of JSON Lines, and --resume runs what it lacks.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

namespace {

using namespace flash::test;
using flash::ProcessResult;

/// A folder with a stage, the file of a sweep over four lengths, and a log of what ran.
struct Sweep {
  FakeStages stages;
  std::string file = stages.file("rows.jsonl");
  Strings arguments{"--device", "cpu", "--pass", "forward", "--sweep", "seq=8,16,32,64", "--save", file};

  explicit Sweep(const std::string& first = "") : stages(answers("echo $Nq >> $log; " + first)) {}

  ProcessResult run(const Strings& more = {}) const { return compare(stages, joined(arguments, more)); }
  ProcessResult resume() const { return run({"--resume"}); }
  std::string ran() const { return stages.logged(); }  ///< the lengths, since the last call
  std::vector<int> lengths() const {
    std::vector<int> all;
    for (const Json& row : rows_in(file)) all.push_back(row["problem"]["seq_q"]);
    return all;
  }

  /// Runs the whole sweep, changes each row of the file by change(row, length), and returns what --resume runs.
  template <class Change>
  std::string ran_after(Change&& change) const {
    std::filesystem::remove(file);
    good(run());
    Json rows = rows_in(file);
    for (Json& row : rows) change(row, row["problem"]["seq_q"].get<int>());
    write_bytes(file, lines_of(rows));
    ran();
    good(resume());
    return ran();
  }
};

}  // namespace

TEST_CASE("saving: a signal ends the child too and leaves the rows so far, and --resume runs the rest") {
  for (const char* signal : {"TERM", "KILL"}) {
    CAPTURE(signal);
    const Sweep sweep("[ $Nq -ne 32 ] || [ -e \"$0.again\" ] || { echo $$ > $0.pid; exec sleep 100; }");
    const std::string file = sweep.stages.file("01_first.pid");
    end_by_signal(sweep.stages, sweep.arguments, signal, file);
    const std::string child = read_bytes(file), process = "/proc/" + child.substr(0, child.size() - 1) + "/cwd";
    for (int i = 0; i < 500 && std::filesystem::exists(process); ++i) usleep(10000);
    CHECK_FALSE(std::filesystem::exists(process));
    CHECK(sweep.lengths() == std::vector{8, 16});
    CHECK(sweep.ran() == "8 16 32 ");

    write_bytes(sweep.stages.file("01_first.again"), "");
    const ProcessResult result = good(sweep.resume());
    CHECK(sweep.ran() == "32 64 ");
    check_has(result.error, {"2 of 4 runs are saved\n", "[3/4] forward 01_first/plain, "});
    CHECK(sweep.lengths() == std::vector{8, 16, 32, 64});
    check_has(result.output, {"Nq=8 ", "Nq=16 ", "Nq=32 ", "Nq=64 "});
    CHECK(good(sweep.resume()).output == result.output);
    CHECK(sweep.ran().empty());
  }
}

TEST_CASE("saving: rows are appended, and of the same run the latest holds") {
  const Sweep sweep;
  good(sweep.run());
  Json rows = rows_in(sweep.file);
  rows[1]["verdict"] = "WRONG";
  write_bytes(sweep.file, lines_of(rows));
  const ProcessResult wrong = sweep.resume();
  CHECK(wrong.exit_code == 1);
  CHECK(contains(wrong.output, "FAILED"));
  good(sweep.run());
  CHECK(sweep.lengths() == std::vector{8, 16, 32, 64, 8, 16, 32, 64});
  good(sweep.resume());
}

TEST_CASE("saving: a row of other code, of another device or of another problem does not count") {
  const Sweep sweep;
  const std::string kernel = "01_naive/kernel.cuh";
  CHECK(sweep.ran_after([&](Json& row, int length) {
    if (length == 8) row["sources"][kernel] = "0123456789012345";
    if (length == 16) row["sources"][kernel] = nullptr;  // unknown
    if (length == 32) row.erase("sources");
    if (length == 64) row["verdict"] = "TIMED OUT";  // which counts
  }) == "8 16 32 ");
  CHECK(sweep.ran_after([](Json& row, int length) {
    if (length == 8) row["device"]["simulates_sm"] = 90;
    if (length == 16) row["device"]["simulates_sm"] = 75;
    if (length == 32) row["device"] = {{"kind", "gpu"}, {"name", "Test gpu"}};
    if (length == 64) row["device"]["name"] = "another processor";  // which counts the same
  }) == "16 32 ");
  for (const Strings& other :
       {Strings{"--batch", "3"}, Strings{"--no-causal"}, Strings{"--seed", "2"}, Strings{"--scale", "2"}}) {
    CAPTURE(other.front());
    good(sweep.run(joined(other, {"--resume"})));
    CHECK(sweep.ran() == "8 16 32 64 ");
  }
}

TEST_CASE("saving: a file that holds anything else than rows is refused before anything runs, and stays as it is") {
  const Sweep sweep;
  good(sweep.run());
  sweep.ran();
  const std::string whole = read_bytes(sweep.file);
  const auto check = [&](const std::string& text, const std::string& message) {
    CAPTURE(text);
    write_bytes(sweep.file, text);
    for (const ProcessResult& result : {sweep.run(), sweep.resume()}) check_refused(result, message);
    CHECK(read_bytes(sweep.file) == text);
  };
  check("my notes\n", ":1: it is no JSON object; allowed: rows that compare --save wrote");
  check(whole.substr(0, whole.size() - 1), ":4: it has no end");  // a killed program, or somebody's editor
  check("[]\n", ":1: it is no JSON object");
  check(whole.substr(0, whole.find('\n') - 9) + "\n" + whole, ":1: it is no JSON object");
  const auto check_row = [&](const Json& patch, const std::string& message) {
    write_bytes(sweep.file, whole);
    Json rows = rows_in(sweep.file);
    rows[1].merge_patch(patch);
    check(lines_of(rows), ":2: " + message);
  };
  check_row({{"stage", nullptr}}, "it has no 'stage'");
  check_row({{"verdict", nullptr}}, "it has no 'verdict'");
  check_row({{"verdict", "fine"}}, "verdict is 'fine'");
  check_row({{"flops", "many"}}, "'flops' is \"many\"; allowed: number");
  check_row({{"wheels", 4}}, "'wheels' is no field of a row");
  check_row({{"problem", {{"heads", 0}}}}, "--heads 0");
  check_row({{"problem", {{"heads", "two"}}}}, "its problem is none: ");
  CHECK(sweep.ran().empty());
  std::filesystem::remove(sweep.file);
  std::filesystem::create_directory(sweep.file);
  check_refused(sweep.run(), "is not a regular file");
}

TEST_CASE("saving: a full medium is said") {
  const Sweep sweep;
  const ProcessResult result =
      limited("trap '' XFSZ; ulimit -f 1", sweep.stages, {"--sweep", "seq=8,16,32,64", "--save", sweep.file});
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(result.error.ends_with("rows.jsonl cannot be written: File too large\n"), result.error);
}
