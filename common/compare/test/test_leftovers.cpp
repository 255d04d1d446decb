// What the comparison program leaves behind: with --save, and when a signal ends it.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace flash::test;
using flash::ProcessResult;
using Json = nlohmann::json;

TEST_CASE("compare: --save refuses what is no regular file before anything runs, and touches nothing else") {
  const FakeStages stages;
  const TemporaryFolder folder;
  const std::filesystem::path ran = folder.path() / "ran", target = folder.path() / "rows.json";
  stages.add_raw("01_first", "touch " + ran.string());  // even --list would leave the trace
  const auto check_kept = [&] {
    check_refused(compare_on_cpu(stages, {"--save", target.string()}), "not a regular file");
    CHECK_FALSE(std::filesystem::exists(ran));
  };
  std::filesystem::create_directory(target);
  check_kept();
  std::filesystem::remove(target);
  write_bytes(folder.path() / "mine", "mine");
  std::filesystem::create_symlink("mine", target);
  check_kept();
  CHECK(read_bytes(folder.path() / "mine") == "mine");

  std::filesystem::remove(target);
  stages.add("01_first", prints(passed_report()));
  write_bytes(target.string() + ".part", "also mine");
  CHECK(compare_on_cpu(stages, {"--save", target.string()}).exit_code == 0);
  CHECK(read_bytes(target.string() + ".part") == "also mine");
  CHECK(Json::parse(read_bytes(target)).size() == 1);
}

TEST_CASE("compare: --save and --html replace nothing of the user's, which is known before anything runs") {
  const FakeStages stages;
  const TemporaryFolder folder;
  const std::string ran = (folder.path() / "ran").string(), file = (folder.path() / "file").string();
  stages.add_raw("01_first", "touch " + ran);  // even --list would leave the trace
  const auto check_kept = [&](const char* option, const std::string& contents, const char* message) {
    CAPTURE(contents);
    std::filesystem::remove(file);
    write_bytes(file, contents);
    check_refused(compare_on_cpu(stages, {option, file}), message);
    CHECK(read_bytes(file) == contents);
    CHECK_FALSE(std::filesystem::exists(ran));
  };
  for (const char* contents : {"my notes", "{}", "[1]", R"([{"stage": "06", "variant": "x", "tune": {}}])"}) {
    check_kept("--save", contents, "--save replaces rows alone, and leaves anything else as it is: ");
  }
  for (const char* contents : {"my notes", "<!DOCTYPE html>\n<html>", "[]"})
    check_kept("--html", contents, "is no report of compare");
  for (const char* option : {"--save", "--html"}) {
    std::filesystem::remove(file);
    write_bytes(file, "");
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    check_refused(compare_on_cpu(stages, {option, file}), "file cannot be written: it is read-only");
  }
  CHECK_FALSE(std::filesystem::exists(ran));
}

TEST_CASE("compare: --save replaces rows, and those that it cannot make again only with --force") {
  const FakeStages stages;
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "rows.json").string(), log = (folder.path() / "log").string();
  stages.add("01_first", answers("echo run >> " + log));
  const auto run = [&](const Strings& more) { return compare_on_cpu(stages, joined({"--save", file}, more)); };
  const ProcessResult first = run({"--sweep", "seq=8,16"});
  CHECK_MESSAGE(contains(first.error, "\nwrote " + file + ": 2 rows\n"), first.error);
  const ProcessResult second = run({});
  CHECK_MESSAGE(contains(second.error, "\nwrote " + file + ": 1 row\n"), second.error);
  write_bytes(file, "");
  CHECK(run({}).exit_code == 0);

  const Json made = Json::parse(read_bytes(file));
  const auto check_lost = [&](const Json& rows, const std::string& message) {
    write_bytes(file, rows.dump());
    std::filesystem::remove(log);
    check_refused(run({}), message);
    CHECK_FALSE(std::filesystem::exists(log));
    CHECK(Json::parse(read_bytes(file)) == rows);
    CHECK(run({"--force"}).exit_code == 0);
    CHECK(Json::parse(read_bytes(file))[0]["stage"] == "01_first");
    CHECK(Json::parse(read_bytes(file))[0]["device"]["kind"] == "cpu");
  };
  Json rows = made;
  rows.push_back(made[0]);
  rows[1]["device"] = {{"kind", "gpu"}, {"name", "Test GPU"}};
  check_lost(rows,
             "rows.json holds rows of Test GPU, which this run would replace by its own; allowed: a new name, or --force");
  rows[1] = made[0];
  rows[1]["stage"] = "peer";
  check_lost(rows, "rows.json holds rows of peers.py");
  check_refused(compare({"--device", "cpu", "--force"}), "--force is given without --save");
}

TEST_CASE("compare: a signal stops the child too and leaves no file") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    const FakeStages stages;
    const TemporaryFolder folder;
    const std::string pid_file = (folder.path() / "pid").string(), rows = (folder.path() / "rows.json").string();
    stages.add("01_slow", "echo $$ > " + pid_file + ".new; mv " + pid_file + ".new " + pid_file + "; exec sleep 100");
    const pid_t program = start_compare(stages, {"--device", "cpu", "--save", rows}, "/dev/null", "/dev/null");
    for (int i = 0; i < 2000 && !std::filesystem::exists(pid_file); ++i) usleep(10000);
    REQUIRE(std::filesystem::exists(pid_file));  // the child runs
    kill(program, number);
    const int status = status_of(program);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == number);
    const pid_t child = std::stoi(read_bytes(pid_file));
    CHECK(kill(child, 0) != 0);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);  // the pid alone
  }
}
