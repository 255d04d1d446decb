// --rows: saved rows shown again, and the tables.
#include "common/compare/plan.hpp"
#include "common/compare/test/fake_stages.hpp"
#include "common/harness/test/lines.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>

namespace {

using namespace flash::test;
using flash::ProcessResult;

const std::string results = FLASH_SOURCE_DIR "/docs/results/";

}  // namespace

TEST_CASE("rows: saved rows give the same tables and JSON as the runs did") {
  const FakeStages stages(answers(), both_passes);
  stages.add("02_picky", answers("[ $d -eq 16 ] || { echo '02_picky: only d = 16' >&2; exit 2; }"));
  const std::string file = stages.file("rows.jsonl");
  const ProcessResult runs =
      good(compare(stages, {"--device", "cpu", "--sweep", "d=16,64", "--sweep", "seq=8,16", "--scale", "2", "--save", file}));
  const ProcessResult shown = good(compare({"--rows", file}));
  CHECK(shown.error.empty());
  CHECK(shown.output == runs.output);
  check_has(shown.output, {"02_picky: only d = 16", "scale=2"});
  const std::string saved = read_bytes(file);
  CHECK(compare({"--rows", file, "--json"}).output == saved);
  CHECK(std::count(saved.begin(), saved.end(), '\n') == 2 * 2 * 3);
  CHECK(saved.starts_with("{\"stage\":"));
}

TEST_CASE("rows: a window and a softcap make another problem, and survive the file") {
  const TemporaryFolder folder;
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  const std::string file = folder.path() / "rows";
  row.merge_patch({{"problem", {{"window", "3,-1"}, {"softcap", 0.5}}}});
  write_bytes(file, lines_of(Json::array({row})));
  check_has(good(compare({"--rows", file})).output, {" window=3,-1 softcap=0.5 "});
  row.merge_patch({{"problem", {{"window", "3"}}}});
  write_bytes(file, lines_of(Json::array({row})));
  check_refused(compare({"--rows", file}), 2, "compare: ");
}

TEST_CASE("rows: the lengths of a ragged batch make another problem, and must be some") {
  const TemporaryFolder folder;
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  const std::string file = folder.path() / "rows";
  row.merge_patch({{"problem", {{"lengths", "9,0,4:7"}}}});
  write_bytes(file, lines_of(Json::array({row})));
  check_has(good(compare({"--rows", file})).output, {" lengths=9,0,4:7 "});
  row.merge_patch({{"problem", {{"lengths", "9,x"}}}});
  write_bytes(file, lines_of(Json::array({row})));
  check_refused(compare({"--rows", file}), 2, "compare: ");
}

TEST_CASE("rows: rows of peers stand in the table of their problem, apart from those of another device or simulated GPU") {
  const TemporaryFolder folder;
  const auto row = [](const char* stage, const char* kind, int seq, int sm = 90) {
    Json made = rows_in(results + "cpu/compare.jsonl")[0];
    made.merge_patch({{"stage", stage},
                      {"variant", "v"},
                      {"tflops", 12.5},
                      {"time", {{"median_ms", 0.125 * seq}, {"enqueue_ms", 0.75}}},
                      {"device", {{"kind", kind}, {"name", std::string("Test ") + kind}, {"simulates_sm", sm}}},
                      {"problem", {{"seq_q", seq}, {"seq_k", seq}}}});
    return made;
  };
  const std::string one = folder.path() / "one", two = folder.path() / "two";
  write_bytes(one, lines_of({row("01_first", "gpu", 8), row("01_first", "gpu", 16), row("01_first", "cpu", 8),
                             row("01_first", "cpu", 8, 75)}));
  write_bytes(two, lines_of(Json::array({row("peer", "gpu", 8)})));  // Json{x} is a copy of x to clang
  const std::string tables = good(compare({"--rows", one + "," + two})).output;
  std::string order;
  const std::regex part("\\n(forward, .* Nk=|on [^;:\\n]*|01_first/v|peer/v)");
  for (std::sregex_iterator at(tables.begin(), tables.end(), part), end; at != end; ++at) order += at->str();
  const std::string head = "\nforward, B=1 H=2 Hkv=2 ", of_cpu = "\non the CPU simulator of sm_";
  CHECK(order == head + "Nq=8 Nk=\non Test gpu\n01_first/v\npeer/v" +  //
                     head + "Nq=16 Nk=\non Test gpu\n01_first/v" +     //
                     head + "Nq=8 Nk=" + of_cpu + "90\n01_first/v" +   //
                     head + "Nq=8 Nk=" + of_cpu + "75\n01_first/v");
}

TEST_CASE("rows: a failure among them gives exit code 1, and options for runs are refused beside them") {
  const TemporaryFolder folder;
  const std::string saved = results + "cpu/compare.jsonl", file = folder.path() / "rows.jsonl";
  for (const Strings& more :
       {Strings{"--seq", "8"}, Strings{"--causal"}, Strings{"--no-causal"}, Strings{"--sweep", "seq=8,16"},
        Strings{"--only", "01"}, Strings{"--save", "x"}, Strings{"--no-counts"}}) {
    check_refused(compare(joined({"--rows", saved}, more)), " excludes --");
  }
  write_bytes(file, "");
  check_refused(compare({"--rows", file + "," + file}), "--rows: there is no row in the given files");
  Json rows = rows_in(saved);
  rows[0]["verdict"] = "WRONG";
  write_bytes(file, lines_of(rows));
  const ProcessResult failed = compare({"--rows", file});
  CHECK(failed.exit_code == 1);
  CHECK(contains(failed.output, "FAILED"));
}

TEST_CASE("rows: tables fit 80 columns unless --wide is given, and say which columns are left out") {
  const std::string files = results + "cpu/compare.jsonl," + results + "nvidia_h200/compare.jsonl";
  const std::string narrow = compare({"--rows", files}).output, wide = compare({"--rows", files, "--wide"}).output;
  CHECK_MESSAGE(longest_line(narrow) <= 80, narrow);
  check_has(narrow, {"stage/variant", "TFLOP/s", "moved", "barriers"});
  check_has(words(narrow.substr(narrow.rfind("\n\n"))), {"Columns left out: ", "written", "warp ops", "--wide shows them"});
  check_has(wide, {"sectors", "written", "tiles", "new idea\n", "  S and P written to HBM, softmax without the max\n"});
  CHECK_FALSE(contains(wide, "left out"));
}

TEST_CASE("rows: every row of the saved results is one") {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(results)) {
    if (entry.path().extension() != ".jsonl" || entry.path().parent_path().filename() == "traces") continue;
    CHECK_MESSAGE(compare({"--rows", entry.path(), "--json"}).error.empty(), entry.path());
  }
}

TEST_CASE("rows: hashes of code see tokens alone") {  // test_files.py has the same
  const std::string code = "int f(float x) {\n  return x < 2.0f ? 1 : g(\"a \\\" b  // c\", x);\n}\n";
  CHECK(flash::code_hash(code) == "9d855cab8999c560");
  CHECK(flash::code_hash("/* one\n// */int/**/f(float x){// it's \"one\nreturn x<2.0f?1:g(\"a \\\" b  // c\",x);}") ==
        "9d855cab8999c560");
  CHECK(flash::code_hash("int f(float x){return x<2.0f?1:g(\"a \\\" b // c\",x);}") != "9d855cab8999c560");
  CHECK(flash::code_hash("intf(float x){return x<2.0f?1:g(\"a \\\" b  // c\",x);}") != "9d855cab8999c560");
}
