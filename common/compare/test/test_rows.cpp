// Saved rows, and the tables of them.
#include "common/base/error.hpp"
#include "common/compare/table.hpp"
#include "common/compare/test/fake_stages.hpp"
#include "common/harness/test/lines.hpp"

#include <doctest/doctest.h>

#include <regex>

namespace {

using namespace flash::test;

const std::string results = FLASH_SOURCE_DIR "/docs/results/";

std::vector<flash::Row> rows_from(const Json& rows) {
  std::vector<flash::Row> all;
  for (const Json& row : rows) all.push_back(flash::row_from_json(row));
  return all;
}

}  // namespace

TEST_CASE("rows: a window and a softcap make another problem") {
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  row.merge_patch({{"problem", {{"window", "3,-1"}, {"softcap", 0.5}}}});
  check_has(flash::comparison_tables(rows_from(Json::array({row})), false), {" window=3,-1 softcap=0.5 "});
  row.merge_patch({{"problem", {{"window", "3"}}}});
  CHECK_THROWS_AS(flash::row_from_json(row), flash::UsageError);
}

TEST_CASE("rows: dropout and its seed make another problem") {
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  row.merge_patch({{"problem", {{"dropout", 0.25}, {"dropout_seed", 3}}}});
  check_has(flash::comparison_tables(rows_from(Json::array({row})), false), {" dropout=0.25 (seed 3) "});
  row["problem"].erase("dropout_seed");
  CHECK_THROWS_AS(flash::row_from_json(row), flash::UsageError);
}

TEST_CASE("rows: the gradient of a bias makes another problem, and needs a matrix") {
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  row.merge_patch({{"problem", {{"bias", "matrix"}, {"bias_gradient", true}}}});
  check_has(flash::comparison_tables(rows_from(Json::array({row})), false), {" and its gradient"});
  row["problem"]["bias"] = "vector";
  CHECK_THROWS_AS(flash::row_from_json(row), flash::UsageError);
}

TEST_CASE("rows: another score makes another problem, and centroids another one") {
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  row.merge_patch({{"problem", {{"score", "lorentz"}}}});
  check_has(flash::comparison_tables(rows_from(Json::array({row})), false), {" score=lorentz "});
  row["problem"]["values"] = "centroid";
  check_has(flash::comparison_tables(rows_from(Json::array({row})), false), {" score=lorentz values=centroid "});
  row["problem"]["score"] = "cosine";
  CHECK_THROWS_AS(flash::row_from_json(row), flash::UsageError);
}

TEST_CASE("rows: the lengths of a ragged batch make another problem, and must be some") {
  Json row = rows_in(results + "cpu/compare.jsonl")[0];
  row.merge_patch({{"problem", {{"lengths", "9,0,4:7"}}}});
  check_has(flash::comparison_tables(rows_from(Json::array({row})), false), {" lengths=9,0,4:7 "});
  row.merge_patch({{"problem", {{"lengths", "9,x"}}}});
  CHECK_THROWS_AS(flash::row_from_json(row), flash::UsageError);
}

TEST_CASE("rows: rows of peers stand in the table of their problem, apart from those of another device or simulated GPU") {
  const auto row = [](const char* stage, const char* kind, int seq, int sm = 90) {
    Json made = rows_in(results + "cpu/compare.jsonl")[0];
    made.merge_patch({{"stage", stage},
                      {"variant", "v"},
                      {"device", {{"kind", kind}, {"name", std::string("Test ") + kind}, {"simulates_sm", sm}}},
                      {"problem", {{"seq_q", seq}, {"seq_k", seq}}}});
    return made;
  };
  const std::string tables =
      flash::comparison_tables(rows_from({row("01_first", "gpu", 8), row("01_first", "gpu", 16), row("01_first", "cpu", 8),
                                          row("01_first", "cpu", 8, 75), row("peer", "gpu", 8)}),
                               false);
  std::string order;
  const std::regex part("\\n(forward, .* Nk=|on [^;:\\n]*|01_first/v|peer/v)");
  for (std::sregex_iterator at(tables.begin(), tables.end(), part), end; at != end; ++at) order += at->str();
  const std::string head = "\nforward, B=1 H=2 Hkv=2 ", of_cpu = "\non the CPU simulator of sm_";
  CHECK(order == head + "Nq=8 Nk=\non Test gpu\n01_first/v\npeer/v" +  //
                     head + "Nq=16 Nk=\non Test gpu\n01_first/v" +     //
                     head + "Nq=8 Nk=" + of_cpu + "90\n01_first/v" +   //
                     head + "Nq=8 Nk=" + of_cpu + "75\n01_first/v");
}

TEST_CASE("rows: tables fit 80 columns unless all columns are asked for") {
  for (const char* file : {"cpu/compare.jsonl", "nvidia_h200/compare.jsonl", "nvidia_h200/compare16.jsonl"}) {
    const std::vector<flash::Row> rows = flash::read_rows(results + file);
    const std::string narrow = flash::comparison_tables(rows, false), wide = flash::comparison_tables(rows, true);
    CHECK_MESSAGE(longest_line(narrow) <= 80, narrow);
    check_has(narrow, {"stage/variant", "moved", rows.front().backend() == flash::Backend::gpu ? "TFLOP/s" : "barriers"});
    check_has(wide, {"new idea\n"});
  }
}

TEST_CASE("rows: every row of the saved results is one") {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(results)) {
    if (entry.path().extension() != ".jsonl" || entry.path().parent_path().filename() == "traces") continue;
    CHECK_NOTHROW_MESSAGE(flash::read_rows(entry.path()), entry.path());
  }
}
