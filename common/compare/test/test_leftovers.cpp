// What the comparison program leaves behind: with --save, and when a signal ends it.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

using namespace flash::test;
using flash::ProcessResult;

TEST_CASE("compare: --save and --html replace nothing of the user's, which is known before anything runs") {
  const FakeStages stages;
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "file", mine = folder.path() / "mine";
  stages.add_raw("01_first", "touch " + stages.file("ran"));  // even --list would leave the trace
  const auto check_kept = [&](const char* option, const std::string& message) {
    check_refused(compare_on_cpu(stages, {option, file}), message);
    CHECK_FALSE(std::filesystem::exists(stages.file("ran")));
  };
  const auto check_contents_kept = [&](const char* option, const std::string& contents, const char* message) {
    CAPTURE(contents);
    write_bytes(file, contents);
    check_kept(option, message);
    CHECK(read_bytes(file) == contents);
  };
  for (const char* contents : {"my notes", "{}", "[1]", R"([{"stage": "06", "variant": "x", "tune": {}}])"}) {
    check_contents_kept("--save", contents, "--save replaces rows alone, and leaves anything else as it is: ");
  }
  for (const char* contents : {"my notes", "<!DOCTYPE html>\n<html>", "[]"}) {
    check_contents_kept("--html", contents, "is no report of compare");
  }
  write_bytes(file, "");
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  for (const char* option : {"--save", "--html"}) check_kept(option, "file cannot be written: it is read-only");
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  check_kept("--save", "not a regular file");
  std::filesystem::remove(file);
  write_bytes(mine, "mine");
  std::filesystem::create_symlink("mine", file);
  check_kept("--save", "not a regular file");
  CHECK(read_bytes(mine) == "mine");

  std::filesystem::remove(file);
  stages.add("01_first", answers());
  write_bytes(file.string() + ".part", "also mine");
  good(compare_on_cpu(stages, {"--save", file}));
  CHECK(read_bytes(file.string() + ".part") == "also mine");
  CHECK(rows_in(file).size() == 1);
}

TEST_CASE("compare: --save replaces rows, and those that it cannot make again only with --force") {
  const FakeStages stages(answers("echo run >> $log"));
  const std::string file = stages.file("rows.json");
  const auto run = [&](const Strings& more) { return compare_on_cpu(stages, joined({"--save", file}, more)); };
  const std::string first = run({"--sweep", "seq=8,16"}).error, second = run({}).error;
  CHECK_MESSAGE(contains(first, "\nwrote " + file + ": 2 rows\n"), first);
  CHECK_MESSAGE(contains(second, "\nwrote " + file + ": 1 row\n"), second);
  write_bytes(file, "");
  good(run({}));

  const Json made = rows_in(file);
  const auto check_lost = [&](const Json& row, const std::string& message) {
    const Json rows{made[0], row};
    write_bytes(file, rows.dump());
    stages.logged();
    check_refused(run({}), message);
    CHECK(stages.logged().empty());
    CHECK(rows_in(file) == rows);
    good(run({"--force"}));
    CHECK(rows_in(file)[0]["stage"] == "01_first");
    CHECK(rows_in(file)[0]["device"]["kind"] == "cpu");
  };
  Json of_gpu = made[0], of_peers = made[0];
  of_gpu["device"] = {{"kind", "gpu"}, {"name", "Test GPU"}};
  of_peers["stage"] = "peer";
  check_lost(of_gpu,
             "rows.json holds rows of Test GPU, which this run would replace by its own; allowed: a new name, or --force");
  check_lost(of_peers, "rows.json holds rows of peers.py");
}

TEST_CASE("compare: a signal stops the child too and leaves no file") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    CAPTURE(number);
    const FakeStages stages;
    const TemporaryFolder folder;
    const std::string pid_file = folder.path() / "pid", rows = folder.path() / "rows.json";
    stages.add("01_slow", "echo $$ > " + pid_file + ".new; mv " + pid_file + ".new " + pid_file + "; exec sleep 100");
    end_by_signal(start_compare(stages, {"--device", "cpu", "--save", rows}, "/dev/null", "/dev/null"), number,
                  [&] { return std::filesystem::exists(pid_file); });  // the child runs
    const std::filesystem::path child = "/proc/" + read_bytes(pid_file).substr(0, read_bytes(pid_file).find('\n')) + "/cwd";
    for (int i = 0; i < 500 && std::filesystem::exists(child); ++i) usleep(10000);  // after SIGKILL the kernel ends it
    CHECK_FALSE(std::filesystem::exists(child));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);  // the pid alone
  }
}

TEST_CASE("compare: a limit on the size of files is a full medium") {
  const FakeStages stages(answers());
  const TemporaryFolder folder;
  const std::string file = folder.path() / "rows.json";
  const ProcessResult result = limited("ulimit -f 1", stages, {"--save", file});
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(result.error.ends_with("rows.json.partial cannot be written: File too large\n"), result.error);
  CHECK(std::filesystem::is_empty(folder.path()));
}
