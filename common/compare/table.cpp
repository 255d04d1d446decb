#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace flash {
namespace {

using Cell = std::function<std::string(const Row&)>;  // "-" if the row has no such value

struct Column {
  std::string title;
  int gpu, cpu;  ///< in a table of such rows: where there is no room, the highest goes first; 0 stays; -1: not there
  Cell cell;
  TextTable::Align align = TextTable::Align::right;

  int rank(Backend backend) const { return backend == Backend::gpu ? gpu : cpu; }
};

Cell figure(const std::string& path, std::string (*text)(double)) {
  return [=](const Row& row) {
    const std::optional<double> value = row.number(path);
    return value ? text(*value) : "-";
  };
}

Cell words(const char* field) {
  return [=](const Row& row) { return row.json.value(field, "-"); };
}

std::string number(double value) { return number_text(value); }
std::string count(double value) { return count_text(static_cast<std::uint64_t>(value)); }
std::string label(const Row& row) { return row.label(); }
std::string tiles(const Row& row) { return row.tiles_text().value_or("-"); }

std::string moved(const Row& row) {
  const std::optional<double> read = row.number("hbm_read_bytes"), written = row.number("hbm_written_bytes");
  return read && written ? bytes_text(*read + *written) : "-";
}

std::string max_error(const Row& row) {
  const std::optional<double> error = row.max_error();
  return error ? number_text(*error) : "-";
}

std::string as_predicted(const Row& row) {
  for (const std::string bytes : {"read_bytes", "written_bytes"}) {
    const Json predicted = row.at("predicted." + bytes), counted = row.at("hbm_" + bytes);
    if (predicted.is_null() || counted.is_null()) return "-";
    if (predicted != counted) return "not as predicted";
  }
  return "as predicted";
}

/// "64,32": what --tune found to be the "default" or the "fastest".
Cell tuned_tiles(const std::string& which) {
  return [path = "tune." + which](const Row& row) {
    const Json tiles = row.at(path);
    return tiles.is_object() ? tiles.value("br", Json()).dump() + "," + tiles.value("bc", Json()).dump() : "-";
  };
}

/// In their order.
const std::vector<Column> all_columns{
    {"stage/variant", 0, 0, label, TextTable::Align::left},
    {"tiles", 6, 8, tiles, TextTable::Align::left},
    {"extra\nmemory", 4, 2, figure("extra_memory_bytes", bytes_text)},
    {"read", 7, 5, figure("hbm_read_bytes", bytes_text)},
    {"written", 7, 6, figure("hbm_written_bytes", bytes_text)},
    {"moved", 3, 1, moved},
    {"bytes", -1, 8, as_predicted, TextTable::Align::left},
    {"median\nms", 1, -1, figure("time.median_ms", number)},
    {"min\nms", 11, -1, figure("time.min_ms", number)},
    {"max\nms", 11, -1, figure("time.max_ms", number)},
    {"enqueue\nms", 12, -1, figure("time.enqueue_ms", number)},
    {"TFLOP/s", 1, -1, figure("tflops", number)},
    {"% of\npeak", 2, -1, figure("percent_of_peak", number)},
    {"sectors", -1, 4, figure("counters.sectors", count)},
    {"barriers", -1, 3, figure("counters.barriers", count)},
    {"warp\nops", -1, 7, figure("counters.warp_operations", count)},
    {"bank\nconflicts", -1, 4, figure("counters.bank_conflicts", count)},
    {"max\nerror", 5, 9, max_error},
    {"verdict", 0, 0, words("verdict"), TextTable::Align::left},
    {"new idea", 13, 13, words("idea"), TextTable::Align::left},
};

/// The columns of the table of --tune.
const std::vector<Column> tune_columns{
    {"stage/variant", 0, 0, label, TextTable::Align::left},
    {"pass", 0, 0, words("pass"), TextTable::Align::left},
    {"problem", 0, 0, [](const Row& row) { return describe(row.problem()); }, TextTable::Align::left},
    {"default", 0, 0, tuned_tiles("default"), TextTable::Align::left},
    {"fastest", 0, 0, tuned_tiles("fastest"), TextTable::Align::left},
    {"verdict", 0, 0, words("verdict"), TextTable::Align::left},
};

using Group = std::vector<Row>;  // of one pass, problem and device
using Shown = std::vector<Column>;

TextTable table_of(const Group& rows, const Shown& shown) {
  std::vector<std::string> header;
  std::vector<TextTable::Align> align;
  for (const Column& column : shown) {
    header.push_back(column.title);
    align.push_back(column.align);
  }
  TextTable table(header, align);
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Column& column : shown) cells.push_back(column.cell(row));
    table.add(cells);
  }
  return table;
}

/// The columns in which a row has a value; those without which the table fits `width` go to `left_out`.
Shown columns_of(const Group& rows, std::size_t width, std::set<std::string>& left_out) {
  const Backend backend = rows.front().backend();
  Shown shown;
  for (const Column& column : all_columns) {
    const bool has_values = std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return column.cell(row) != "-"; });
    if (column.rank(backend) >= 0 && has_values) shown.push_back(column);
  }
  while (table_of(rows, shown).width() > width) {
    const auto least = std::max_element(shown.begin(), shown.end(),
                                        [&](const Column& a, const Column& b) { return a.rank(backend) < b.rank(backend); });
    if (least->rank(backend) == 0) break;
    std::string title = least->title;
    std::replace(title.begin(), title.end(), '\n', ' ');
    left_out.insert(title);
    shown.erase(least);
  }
  return shown;
}

/// The problem, the device, and the units of the columns.
std::string heading_of(const Row& first) {
  const FullProblem problem = first.problem();
  std::string text = std::string(to_string(first.pass())) + ", " + describe(problem) + "\n";
  if (first.backend() == Backend::gpu) {
    text += wrapped("on " + first.device_name() +
                    "; cold L2; bytes are the simulator's counts of one head group, times B*Hkv, of what threads "
                    "request from global memory, before caches");
  } else {
    text += "on the CPU simulator of sm_" + std::to_string(first.simulated_sm()) + ": exact counts; they are not times\n";
    text += "bytes and 32-byte sectors are what threads request from memory, before caches";
  }
  return text + "\nany implementation must move " + bytes_text(compulsory_bytes(problem, first.pass())) + " and do " +
         number_text(flops(problem, first.pass()) / 1e9) + " GFLOP\n";
}

/// The table, and below it what went wrong.
std::string with_messages(const Group& rows, const Shown& shown) {
  std::string text = table_of(rows, shown).text(0, /*rule=*/true);
  for (const Row& row : rows) {
    const std::string message = row.text("message");
    if (!row.is_ok() && !message.empty()) text += row.label() + ": " + message + "\n";
  }
  return text;
}

std::vector<Group> groups_of(const std::vector<Row>& rows) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> places;
  for (const Row& row : rows) {
    const auto [place, is_new] =
        places.try_emplace(describe(row.problem()) + to_string(row.pass()) + row.place(), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(row);
  }
  return groups;
}

}  // namespace

std::string comparison_tables(const std::vector<Row>& every, std::size_t width) {
  std::vector<Row> rows, tuned;
  for (const Row& row : every) (row.is_tuned() ? tuned : rows).push_back(row);
  std::set<std::string> left_out;
  std::string text = tuned.empty() ? "" : "\n" + with_messages(tuned, tune_columns);
  for (const Group& group : groups_of(rows)) {
    const Shown shown = columns_of(group, width, left_out);
    text += "\n" + heading_of(group.front()) + "\n" + with_messages(group, shown);
  }
  std::string names;
  for (const std::string& title : left_out) names += (names.empty() ? "" : ", ") + title;
  if (names.empty()) return text;
  return text + "\n" + wrapped("Columns left out: " + names + ". --wide shows them; --json holds all.") + "\n";
}

}  // namespace flash
