// --save, an interruption, --resume.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace {

using namespace flash::test;
using flash::ProcessResult;
using Json = nlohmann::ordered_json;

/// A folder with stages, the file of a sweep over four lengths, and a log of what ran.
struct Sweep {
  FakeStages stages;
  TemporaryFolder folder;
  std::string file = (folder.path() / "rows.json").string(), partial = file + ".partial";
  std::string log = (folder.path() / "log").string();
  Strings arguments{"--pass", "forward", "--sweep", "seq=8,16,32,64", "--save", file};

  explicit Sweep(const std::string& first = "") { stages.add("01_first", answers("echo $Nq >> " + log + "; " + first)); }

  ProcessResult run(const Strings& more = {}) const {
    return compare(stages, joined(joined({"--device", "cpu"}, arguments), more));
  }

  /// The lengths that ran since the last call.
  std::string ran() const {
    if (!std::filesystem::exists(log)) return "";
    std::string lengths = read_bytes(log);
    std::replace(lengths.begin(), lengths.end(), '\n', ' ');
    std::filesystem::remove(log);
    return lengths;
  }

  /// Moves the file to FILE.partial without the rows that `drop` is true for, each changed by `change`.
  template <class Drop, class Change>
  void interrupt(Drop&& drop, Change&& change) const {
    Json rows = Json::parse(read_bytes(file)), left = Json::array();
    for (Json& row : rows) {
      if (drop(row)) continue;
      change(row);
      left.push_back(row);
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
  const Sweep sweep("[ $Nq -ne 32 ] || [ -e " + std::string("\"$0.again\"") + " ] || exec sleep 100");
  const std::string said = (sweep.folder.path() / "said").string();
  const pid_t program = start_compare(sweep.stages, joined({"--device", "cpu"}, sweep.arguments), "/dev/null", said.c_str());
  const auto third_runs = [&] { return std::filesystem::exists(sweep.log) && contains(read_bytes(sweep.log), "32\n"); };
  for (int i = 0; i < 2000 && !third_runs(); ++i) usleep(10000);
  kill(program, SIGINT);
  const int status = status_of(program);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  CHECK_FALSE(std::filesystem::exists(sweep.file));
  CHECK(lengths(Json::parse(read_bytes(sweep.partial))) == std::vector{8, 16});
  const std::string words = read_bytes(said);
  CHECK_MESSAGE(contains(words, "\ncompare: stopped; 2 of 4 runs are saved, the others run with\n  compare --bin "), words);
  CHECK_MESSAGE(words.ends_with("--save " + sweep.file + " --resume\n"), words);

  check_refused(sweep.run(), sweep.partial + " holds the rows of an interrupted run; allowed: --resume");
  CHECK(sweep.ran() == "8 16 32 ");  // none of it now
  write_bytes(sweep.stages.path() / "01_first.again", "");
  const ProcessResult result = sweep.run({"--resume"});
  CHECK_MESSAGE(result.exit_code == 0, result.error);
  CHECK(sweep.ran() == "32 64 ");
  CHECK(contains(result.error, "2 of 4 runs are saved and still hold\n"));
  CHECK(contains(result.error, "[3/4"));
  CHECK(lengths(Json::parse(read_bytes(sweep.file))) == std::vector{8, 16, 32, 64});
  CHECK_FALSE(std::filesystem::exists(sweep.partial));
  for (const char* size : {"Nq=8 ", "Nq=16 ", "Nq=32 ", "Nq=64 "}) CHECK(contains(result.output, size));

  const std::string before = read_bytes(sweep.file);
  const ProcessResult again = sweep.run({"--resume"});  // of a file that is whole
  CHECK(again.exit_code == 0);
  CHECK(sweep.ran().empty());
  CHECK(read_bytes(sweep.file) == before);
  CHECK(again.output == result.output);
}

TEST_CASE("resume: of several rounds each counts as a run") {
  const FakeStages stages;  // the first run is the probe for a GPU; the last of two rounds over two problems does not end
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "rows.json").string(), said = (folder.path() / "said").string();
  const std::string log = (folder.path() / "log").string();
  stages.add("01_first", answers("echo run >> " + log + "; [ $(wc -l < " + log + ") -ne 5 ] || exec sleep 100; " +
                                 "time=', \"time\": {\"median_ms\": 1, \"min_ms\": 1, \"max_ms\": 1, \"iterations\": 1}'"));
  const pid_t program =
      start_compare(stages, {"--pass", "forward", "--no-counts", "--rounds", "2", "--sweep", "seq=8,16", "--save", file},
                    "/dev/null", said.c_str());
  const auto last_runs = [&] {
    return std::filesystem::exists(log) && read_bytes(log).size() == 5 * std::string("run\n").size();
  };
  for (int i = 0; i < 2000 && !last_runs(); ++i) usleep(10000);
  kill(program, SIGINT);
  status_of(program);
  const std::string words = read_bytes(said);
  CHECK_MESSAGE(contains(words, "\ncompare: stopped; 3 of 4 runs are saved"), words);
}

TEST_CASE("resume: a row that no longer holds is run again") {
  const Sweep sweep;
  REQUIRE(sweep.run().exit_code == 0);
  REQUIRE(sweep.ran() == "8 16 32 64 ");
  const auto change = [&](auto&& changed) {
    sweep.interrupt([](const Json&) { return false; },
                    [&](Json& row) {
                      if (row["problem"]["seq_q"] == 32) changed(row);
                    });
  };
  std::string ran = "32 ";
  SUBCASE("other sources") {
    change([](Json& row) { row["sources"]["01_naive/kernel.cuh"] = "0123456789012345678901234567890123456789"; });
  }
  SUBCASE("unknown sources") {
    change([](Json& row) { row["sources"]["01_naive/kernel.cuh"] = nullptr; });
  }
  SUBCASE("no sources") {
    change([](Json& row) { row.erase("sources"); });
  }
  SUBCASE("a wrong result") {
    change([](Json& row) { row["verdict"] = "WRONG"; });
  }
  SUBCASE("a run that was stopped") {
    change([](Json& row) { row["verdict"] = "TIMED OUT"; });
  }
  SUBCASE("a skipped run") {
    change([](Json& row) { row["verdict"] = "skipped"; });
  }
  SUBCASE("a refusal and lack of memory hold") {
    change([](Json& row) { row["verdict"] = "refused"; });
    ran = "";
  }
  CHECK(sweep.run({"--resume"}).exit_code == 0);
  CHECK(sweep.ran() == ran);
}

TEST_CASE("resume: another problem, mask, type, seed or device is another run, whose row stays in the file") {
  for (const Strings& other :
       {Strings{"--batch", "3"}, Strings{"--no-causal"}, Strings{"--seed", "2"}, Strings{"--scale", "2"}}) {
    CAPTURE(other.front());
    const Sweep sweep;
    REQUIRE(sweep.run().exit_code == 0);
    sweep.ran();
    const ProcessResult result = sweep.run(joined(other, {"--resume"}));
    CHECK_MESSAGE(result.exit_code == 0, result.error);
    CHECK(sweep.ran() == "8 16 32 64 ");
    CHECK(Json::parse(read_bytes(sweep.file)).size() == 8);
  }
  const Sweep sweep;
  REQUIRE(sweep.run().exit_code == 0);
  sweep.interrupt([](const Json&) { return false; },
                  [](Json& row) {
                    if (row["problem"]["seq_q"] == 32) row["device"] = {{"kind", "gpu"}, {"name", "Test gpu"}};
                    if (row["problem"]["seq_q"] == 64) row["device"]["name"] = "another processor";  // which counts the same
                    if (row["problem"]["seq_q"] == 16) row["device"]["simulates_sm"] = 75;
                    if (row["problem"]["seq_q"] == 8) row["device"]["simulates_sm"] = 90;
                  });
  sweep.ran();
  CHECK(sweep.run({"--resume"}).exit_code == 0);
  CHECK(sweep.ran() == "16 32 ");
  const Json rows = Json::parse(read_bytes(sweep.file));
  CHECK(lengths(rows) == std::vector{8, 16, 32, 64, 16, 32});
  CHECK(rows[5]["device"]["name"] == "Test gpu");
}

TEST_CASE("resume: on a GPU the number of iterations and the bytes that are wanted decide too") {
  const Sweep sweep;
  const Strings gpu{"--pass", "forward", "--sweep", "seq=8,16", "--batch", "1", "--heads", "1", "--save", sweep.file};
  const auto run = [&](const Strings& more) {
    const ProcessResult result = compare(sweep.stages, joined(gpu, more));
    CHECK_MESSAGE(result.exit_code == 0, result.error);
    return sweep.ran().substr(2);  // without the probe for a GPU, which is of length 1
  };
  CHECK(run({"--no-counts", "--iterations", "5"}) == "8 16 ");
  CHECK_FALSE(Json::parse(read_bytes(sweep.file))[0].contains("hbm_read_bytes"));
  CHECK(run({"--no-counts", "--iterations", "5", "--resume"}).empty());
  CHECK(run({"--no-counts", "--iterations", "6", "--resume"}) == "8 16 ");
  CHECK(run({"--iterations", "6", "--resume"}) == "8 8 16 16 ");  // each with its counts
  CHECK(run({"--iterations", "6", "--resume"}).empty());
  CHECK(run({"--iterations", "6", "--resume", "--no-counts"}).empty());
}

TEST_CASE("resume: a damaged file is refused and stays as it is") {
  const Sweep sweep;
  REQUIRE(sweep.run().exit_code == 0);
  Json good = Json::parse(read_bytes(sweep.file));
  sweep.ran();
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
  const std::string whole = good.dump();
  check(whole.substr(0, whole.size() / 2), "is damaged");
  check("", "is damaged");
  check("{}", "is damaged");
  check("[1]", "row 1: it is no object");
  const auto without = [&](const char* key) {
    Json rows = good;
    rows[1].erase(key);
    return rows.dump();
  };
  check(without("stage"), "row 2: it has no text 'stage'");
  check(without("problem"), "row 2: it has no problem");
  check(without("verdict"), "row 2: it has no text 'verdict'");
  Json odd = good;
  odd[2]["problem"]["heads"] = 0;
  check(odd.dump(), "row 3: --heads 0");
  odd[2]["problem"]["heads"] = "two";
  check(odd.dump(), "row 3: its problem has no whole number 'heads'");
  odd = good;
  odd[0]["verdict"] = "fine";
  check(odd.dump(), "row 1: verdict is 'fine'");
  write_bytes(sweep.partial, whole);  // good, but it would take the place of something else
  write_bytes(sweep.file, "my notes");
  check_refused(sweep.run({"--resume"}), "--save replaces rows alone");
  CHECK(read_bytes(sweep.file) == "my notes");
  CHECK(sweep.ran().empty());
}

TEST_CASE("resume: saved rows tell how long the others will take") {
  const Sweep sweep;
  REQUIRE(sweep.run().exit_code == 0);
  sweep.ran();
  sweep.interrupt([](const Json& row) { return row["problem"]["seq_q"] == 64; }, [](Json& row) { row["wall_s"] = 500; });
  const ProcessResult result = sweep.run({"--resume"});
  CHECK(result.exit_code == 0);
  CHECK(sweep.ran() == "64 ");  // all of the 500 s may be start-up
  sweep.interrupt([](const Json& row) { return row["problem"]["seq_q"] == 64; },
                  [](Json& row) { row["wall_s"] = row["problem"]["seq_q"] == 32 ? 500 : 1; });
  CHECK(contains(sweep.run({"--resume"}).error, "[4/4, about 1 s left] forward 01_first/plain ... skipped: would take"));
  CHECK(sweep.ran().empty());
  CHECK(Json::parse(read_bytes(sweep.file))[3]["verdict"] == "skipped");
  // A run that may take longer than the limit is stopped then.
  sweep.interrupt([](const Json&) { return false; }, [](Json& row) { row["wall_s"] = row["problem"]["seq_q"] == 32 ? 35 : 1; });
  const ProcessResult far = compare_on_cpu(sweep.stages, {"--sweep", "seq=8,16,32,2048", "--save", sweep.file, "--resume"});
  CHECK_MESSAGE(contains(far.error, "[4/4, about 10 min left] forward 01_first/plain ... ok"), far.error);
}

TEST_CASE("resume: with nothing saved yet everything runs") {
  const Sweep sweep;
  CHECK(sweep.run({"--resume"}).exit_code == 0);
  CHECK(sweep.ran() == "8 16 32 64 ");
  CHECK(Json::parse(read_bytes(sweep.file)).size() == 4);
}
