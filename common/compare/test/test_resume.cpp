// --save, an interruption, --resume.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace {

using namespace flash::test;
using flash::ProcessResult;

/// A folder with stages, the file of a sweep over four lengths, and a log of what ran.
struct Sweep {
  FakeStages stages;
  std::string file = stages.file("rows.json"), partial = file + ".partial";
  Strings arguments{"--pass", "forward", "--sweep", "seq=8,16,32,64", "--save", file};

  explicit Sweep(const std::string& first = "") : stages(answers("echo $Nq >> $log; " + first)) {}

  ProcessResult run(const Strings& more = {}) const {
    return compare(stages, joined(joined({"--device", "cpu"}, arguments), more));
  }

  std::string ran() const { return stages.logged(); }  ///< the lengths, since the last call

  /// Moves the file to FILE.partial, each row changed by `change`, which has its length, without those that become null.
  template <class Change>
  void interrupt(Change&& change) const {
    Json left = Json::array();
    for (Json row : rows_in(file)) {
      change(row, row["problem"]["seq_q"].get<int>());
      if (!row.is_null()) left.push_back(row);
    }
    write_bytes(partial, left.dump());
    std::filesystem::remove(file);
  }
};

std::vector<int> lengths(const Json& rows) {
  std::vector<int> all;
  for (const Json& row : rows) all.push_back(row["problem"]["seq_q"]);
  return all;
}

}  // namespace

TEST_CASE("resume: a signal leaves the rows so far in FILE.partial and says how to go on, and --resume runs the rest") {
  const Sweep sweep("[ $Nq -ne 32 ] || [ -e \"$0.again\" ] || exec sleep 100");
  const std::string said = sweep.stages.file("said");
  end_by_signal(start_compare(sweep.stages, joined({"--device", "cpu"}, sweep.arguments), "/dev/null", said), SIGINT,
                [&] { return contains(read_bytes(sweep.stages.file("log")), "32\n"); });
  CHECK_FALSE(std::filesystem::exists(sweep.file));
  CHECK(lengths(rows_in(sweep.partial)) == std::vector{8, 16});
  const std::string words = read_bytes(said);
  CHECK_MESSAGE(contains(words, "\ncompare: stopped; 2 of 4 runs are saved, the others run with\n  compare --bin "), words);
  CHECK_MESSAGE(words.ends_with("--save " + sweep.file + " --resume\n"), words);

  check_refused(sweep.run(), sweep.partial + " holds the rows of an interrupted run; allowed: --resume");
  CHECK(sweep.ran() == "8 16 32 ");  // none of it now
  write_bytes(sweep.stages.file("01_first.again"), "");
  const ProcessResult result = good(sweep.run({"--resume"}));
  CHECK(sweep.ran() == "32 64 ");
  check_has(result.error, {"2 of 4 runs are saved and still hold\n", "[3/4"});
  CHECK(lengths(rows_in(sweep.file)) == std::vector{8, 16, 32, 64});
  CHECK_FALSE(std::filesystem::exists(sweep.partial));
  check_has(result.output, {"Nq=8 ", "Nq=16 ", "Nq=32 ", "Nq=64 "});

  const std::string before = read_bytes(sweep.file);
  CHECK(good(sweep.run({"--resume"})).output == result.output);  // of a file that is whole
  CHECK(sweep.ran().empty());
  CHECK(read_bytes(sweep.file) == before);
}

TEST_CASE("resume: of several rounds each counts as a run") {
  // The first run is the probe for a GPU; the last of two rounds over two problems does not end.
  const Sweep sweep("[ $(wc -l < $log) -ne 5 ] || exec sleep 100; more=', \"time\": {\"median_ms\": 1, \"iterations\": 1}'");
  const std::string said = sweep.stages.file("said");
  end_by_signal(
      start_compare(sweep.stages,
                    {"--pass", "forward", "--no-counts", "--rounds", "2", "--sweep", "seq=8,16", "--save", sweep.file},
                    "/dev/null", said),
      SIGINT, [&] { return read_bytes(sweep.stages.file("log")) == "1\n8\n16\n8\n16\n"; });
  CHECK_MESSAGE(contains(read_bytes(said), "\ncompare: stopped; 3 of 4 runs are saved"), read_bytes(said));
}

TEST_CASE("resume: a row that no longer holds is run again") {
  const Sweep sweep;
  const std::string kernel = "01_naive/kernel.cuh";
  const auto ran_after = [&](auto&& change) {
    good(sweep.run());
    sweep.ran();
    sweep.interrupt(change);
    good(sweep.run({"--resume"}));
    return sweep.ran();
  };
  CHECK(ran_after([&](Json& row, int length) {
          if (length == 8) row["sources"][kernel] = "0123456789012345";
          if (length == 16) row["sources"][kernel] = nullptr;  // unknown
          if (length == 32) row.erase("sources");
          if (length == 64) row["verdict"] = "refused";  // which holds
        }) == "8 16 32 ");
  CHECK(ran_after([&](Json& row, int length) {
          if (length == 8) row["verdict"] = "WRONG";
          if (length == 16) row["verdict"] = "TIMED OUT";
          if (length == 32) row["verdict"] = "skipped";
          if (length == 64) row["verdict"] = "cannot run";  // which holds
        }) == "8 16 32 ");
}

TEST_CASE("resume: another problem, mask, type, seed or device is another run, whose row stays in the file") {
  for (const Strings& other :
       {Strings{"--batch", "3"}, Strings{"--no-causal"}, Strings{"--seed", "2"}, Strings{"--scale", "2"}}) {
    CAPTURE(other.front());
    const Sweep sweep;
    good(sweep.run());
    sweep.ran();
    good(sweep.run(joined(other, {"--resume"})));
    CHECK(sweep.ran() == "8 16 32 64 ");
    CHECK(rows_in(sweep.file).size() == 8);
  }
  const Sweep sweep;
  good(sweep.run());
  sweep.interrupt([](Json& row, int length) {
    if (length == 32) row["device"] = {{"kind", "gpu"}, {"name", "Test gpu"}};
    if (length == 64) row["device"]["name"] = "another processor";  // which counts the same
    if (length == 16) row["device"]["simulates_sm"] = 75;
    if (length == 8) row["device"]["simulates_sm"] = 90;
  });
  sweep.ran();
  good(sweep.run({"--resume"}));
  CHECK(sweep.ran() == "16 32 ");
  const Json rows = rows_in(sweep.file);
  CHECK(lengths(rows) == std::vector{8, 16, 32, 64, 16, 32});
  CHECK(rows[5]["device"]["name"] == "Test gpu");
}

TEST_CASE("resume: on a GPU the number of iterations and the bytes that are wanted decide too") {
  const Sweep sweep;
  const Strings gpu{"--pass", "forward", "--sweep", "seq=8,16", "--batch", "1", "--heads", "1", "--save", sweep.file};
  const auto run = [&](const Strings& more) {
    good(compare(sweep.stages, joined(gpu, more)));
    return sweep.ran().substr(2);  // without the probe for a GPU, which is of length 1
  };
  CHECK(run({"--no-counts", "--iterations", "5"}) == "8 16 ");
  CHECK_FALSE(rows_in(sweep.file)[0].contains("hbm_read_bytes"));
  CHECK(run({"--no-counts", "--iterations", "5", "--resume"}).empty());
  CHECK(run({"--no-counts", "--iterations", "6", "--resume"}) == "8 16 ");
  CHECK(run({"--iterations", "6", "--resume"}) == "8 8 16 16 ");  // each with its counts
  CHECK(run({"--iterations", "6", "--resume"}).empty());
  CHECK(run({"--iterations", "6", "--resume", "--no-counts"}).empty());
}

TEST_CASE("resume: a damaged file is refused and stays as it is") {
  const Sweep sweep;
  good(sweep.run({"--resume"}));  // of nothing
  const Json rows = rows_in(sweep.file);
  CHECK(sweep.ran() == "8 16 32 64 ");
  const auto check = [&](const std::string& text, const std::string& message) {
    CAPTURE(text);
    for (const std::string& name : {sweep.file, sweep.partial}) {
      std::filesystem::remove(sweep.partial);
      write_bytes(name, text);
      check_refused(sweep.run({"--resume"}), message);
      CHECK(read_bytes(name) == text);
    }
    check_refused(compare({"--rows", sweep.file}), message);
  };
  const std::string whole = rows.dump();
  for (const std::string& text : {whole.substr(0, whole.size() / 2), std::string(), std::string("{}")})
    check(text, "is damaged");
  check("[1]", "row 1: it is no object");
  const auto check_row = [&](const Json& patch, const std::string& message) {  // null: what the row does not have
    Json odd = rows;
    odd[1].merge_patch(patch);
    check(odd.dump(), "row 2: " + message);
  };
  check_row({{"stage", nullptr}}, "it has no text 'stage'");
  check_row({{"verdict", nullptr}}, "it has no text 'verdict'");
  check_row({{"verdict", "fine"}}, "verdict is 'fine'");
  check_row({{"problem", nullptr}}, "it has no problem");
  check_row({{"problem", {{"heads", 0}}}}, "--heads 0");
  check_row({{"problem", {{"heads", "two"}}}}, "its problem has no whole number 'heads'");
  write_bytes(sweep.partial, whole);  // good, but it would take the place of something else
  write_bytes(sweep.file, "my notes");
  check_refused(sweep.run({"--resume"}), "--save replaces rows alone");
  CHECK(read_bytes(sweep.file) == "my notes");
  CHECK(sweep.ran().empty());
}

TEST_CASE("resume: saved rows tell how long the others will take") {
  const Sweep sweep;
  good(sweep.run());
  sweep.ran();
  sweep.interrupt([](Json& row, int length) {
    row["wall_s"] = 500;
    if (length == 64) row = nullptr;
  });
  good(sweep.run({"--resume"}));
  CHECK(sweep.ran() == "64 ");  // all of the 500 s may be start-up
  sweep.interrupt([](Json& row, int length) {
    row["wall_s"] = length == 32 ? 500 : 1;
    if (length == 64) row = nullptr;
  });
  CHECK(contains(sweep.run({"--resume"}).error, "[4/4, about 1 s left] forward 01_first/plain ... skipped: would take"));
  CHECK(sweep.ran().empty());
  CHECK(rows_in(sweep.file)[3]["verdict"] == "skipped");
  // A run that may take longer than the limit is stopped then.
  sweep.interrupt([](Json& row, int length) { row["wall_s"] = length == 32 ? 35 : 1; });
  const ProcessResult far = compare_on_cpu(sweep.stages, {"--sweep", "seq=8,16,32,2048", "--save", sweep.file, "--resume"});
  CHECK_MESSAGE(contains(far.error, "[4/4, about 10 min left] forward 01_first/plain ... ok"), far.error);
}
