// The text reports of --tune and --list.
#include "common/harness/console.hpp"
#include "common/harness/report_json.hpp"

#include <sstream>

namespace flash {

using namespace report;

namespace {

const std::vector<Column> tiles_columns{
    {"Br", "/br"}, {"Bc", "/bc"}, {"shared\nKB", "/shared_kb", 4}, {"blocks\nper SM", "/blocks_per_sm"}};
const std::vector<Column> gpu_columns{{"threads", "/threads"}, {"median\nms", "/time/median_ms", 4}, {"TFLOP/s", "/tflops"}};
const std::vector<Column> cpu_columns{{"HBM\nbytes", "/counters/bytes"},
                                      {"sectors", "/counters/sectors"},
                                      {"bank\nconflicts", "/counters/bank_conflicts"},
                                      {"barriers", "/counters/barriers"}};

/// The words of an array, a comma between them.
std::string joined(const Json& array) {
  std::string text;
  for (const Json& item : array) text += (text.empty() ? "" : ", ") + word(item);
  return text;
}

/// The default tiles, the reason for them, and how much slower than the fastest it is.
std::string default_text(const FullProblem& p, const Json& json, const Json& standard, const Json* fastest) {
  std::string text = line("default", tiles_word(standard) + " for d=" + std::to_string(p.d) + ", " +
                                         (p.causal ? "causal" : "not causal") + ", " + word(json.at("pass")) + ", on " +
                                         device_text(json.at("device")) + ": " + word(standard.at("why")));
  if (fastest == nullptr || !standard.contains("time")) return text;
  const auto median = [](const Json& row) { return row.at("time").at("median_ms").get<double>(); };
  const double percent = 100 * (median(standard) / median(*fastest) - 1);
  const std::string found = fastest == &standard ? "the default"
                                                 : tiles_word(*fastest) + " (" + word(fastest->at("why")) +
                                                       "); the default takes " + number_text(percent, 2) + " % longer";
  return text + line("fastest", found);
}

/// The lines of --list about the tile sizes of a variant: neighbouring widths whose tiles read alike share one.
std::vector<std::vector<std::string>> tile_rows(const Json& variant) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& listed : variant.at("tiles")) {
    std::string choices;
    for (const Json& choice : listed.at("choices")) {
      choices += choices.empty() ? tiles_word(choice) + " (default)" : "  " + tiles_word(choice);
    }
    if (choices.empty()) choices = "none fits";
    const std::string dims = joined(listed.at("head_dims"));
    if (!rows.empty() && rows.back()[1] == word(listed.at("pass")) && rows.back()[3] == choices) {
      rows.back()[2] += ", " + dims;
    } else {
      rows.push_back({word(variant.at("name")), word(listed.at("pass")), dims, choices});
    }
  }
  return rows;
}

}  // namespace

std::string report_of(const TuneRecord& record, Format format) {
  const Json json = to_json(record);
  if (format == Format::json) return printed(json);
  const Json &tune = json.at("tune"), &choices = tune.at("choices");
  const bool gpu = json.at("device").at("kind") == "gpu";
  const Json* fastest = nullptr;
  std::vector<Json> rows;
  std::string failures;
  for (const Json& choice : choices) {
    const bool checked = choice.contains("check"), passed = !checked || choice.at("check").at("passed");
    if (!tune.at("fastest").is_null() && tiles_word(choice) == tiles_word(tune.at("fastest"))) fastest = &choice;
    Json& row = rows.emplace_back(choice);
    row["shared_kb"] = choice.at("shared_bytes").get<double>() / 1024;
    row["verdict"] = std::string(!checked ? "unchecked"
                                 : passed ? "ok"
                                          : "WRONG") +
                     (&choice == &choices.front() ? ", default" : "") + (&choice == fastest ? ", fastest" : "");
    if (!gpu) {
      Json& counters = row.at("counters");
      counters["bytes"] = counters.at("read_bytes").get<std::uint64_t>() + counters.at("written_bytes").get<std::uint64_t>();
    }
    if (passed) continue;
    for (const auto& [tensor, check] : choice.at("check").at("tensors").items()) {
      if (!check.at("passed")) failures += line("FAILED", "tiles " + tiles_word(choice) + ": " + worst_text(tensor, check));
    }
  }
  std::vector<Column> columns = tiles_columns;
  for (const Column& column : gpu ? gpu_columns : cpu_columns) columns.push_back(column);
  columns.push_back({"verdict", "/verdict"});
  std::vector<TextTable::Align> align(columns.size(), TextTable::Align::right);
  align.back() = TextTable::Align::left;
  const std::string counted = gpu ? "median of --iterations, cold L2" : "of this pass, exact; they are not times";
  return word(json.at("stage")) + ", variant " + word(json.at("variant")) + ": all compiled tile sizes\n" +
         heading_text(record.run, json) +
         line(gpu ? "times" : "counts", counted + "; blocks per SM: as many as fit by shared memory") +
         table_text(2, columns, rows, align) + default_text(record.run.problem, json, choices.front(), fastest) + failures;
}

std::string list_of(const StageInfo& stage, const std::vector<Variant>& list, const TilesToList& what, Format format) {
  const Json json = to_json(stage, list, what);
  if (format == Format::json) return printed(json);
  const Json& variants = json.at("variants");
  TextTable table({"variant", "passes", "dtypes", "kernel"}, std::vector(4, TextTable::Align::left));
  TextTable tiles({"variant", "pass", "d", "tiles Br,Bc on sm_" + std::to_string(what.limits.sm)},
                  std::vector(4, TextTable::Align::left));
  bool any = false;
  for (const Json& variant : variants) {
    table.add({variant.at("name"), joined(variant.at("passes")), joined(variant.at("dtypes")), variant.at("kernel")});
    for (const std::vector<std::string>& row : tile_rows(variant)) tiles.add(row), any = true;
  }
  std::string text = wrapped(stage.name + ": " + stage.idea, 2) + "\n";
  std::istringstream lines(table.text(2));
  std::string row;
  std::getline(lines, row);
  text += row + "\n";
  for (const Json& variant : variants) {  // each idea below its variant
    std::getline(lines, row);
    text += row + "\n" + wrapped("      " + word(variant.at("idea")), 6) + "\n";
  }
  return any ? text + tiles.text(2) : text;
}

}  // namespace flash
