#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace flash {
namespace {

/// Null if there is none.
Json value_of(const Row& row, const std::string& path) {
  if (path == "moved_bytes") {
    const Json read = row.at("hbm_read_bytes"), written = row.at("hbm_written_bytes");
    return read.is_number() && written.is_number() ? Json(read.get<std::uint64_t>() + written.get<std::uint64_t>()) : Json();
  }
  const std::optional<double> error = path == "max_error" ? row.max_error() : std::nullopt;
  return error ? Json(*error) : row.at(path);
}

struct Column {
  std::string path;  ///< of the value in a row; "": not there
  std::string title;
  int gpu = -1, cpu = -1;  ///< in a table of such rows: where there is no room, the highest goes first; 0 stays; -1: not there
  std::string (*figure)(double) = nullptr;    ///< how a table writes it; null: it is text
  std::string (*text)(const Row&) = nullptr;  ///< instead of a value

  int rank(Backend backend) const { return backend == Backend::gpu ? gpu : cpu; }

  /// "-" if the row has no such value.
  std::string cell(const Row& row) const {
    if (text != nullptr) return text(row);
    const Json value = value_of(row, path);
    if (figure != nullptr && value.is_number()) return figure(value.get<double>());
    return value.is_string() ? value.get<std::string>() : "-";
  }
};

std::string number(double value) { return number_text(value); }
std::string count(double value) { return count_text(static_cast<std::uint64_t>(value)); }
std::string label(const Row& row) { return row.label(); }
std::string tiles(const Row& row) { return row.tiles_text().value_or("-"); }

std::string as_predicted(const Row& row) {
  for (const std::string bytes : {"read_bytes", "written_bytes"}) {
    const Json predicted = row.at("predicted." + bytes), counted = row.at("hbm_" + bytes);
    if (predicted.is_null() || counted.is_null()) return "-";
    if (predicted != counted) return "not as predicted";
  }
  return "as predicted";
}

/// "64,32": what --tune found to be the "default" or the "fastest".
std::string tuned_tiles(const Row& row, const char* which) {
  const Json tiles = row.at(std::string("tune.") + which);
  return tiles.is_object() ? tiles.value("br", Json()).dump() + "," + tiles.value("bc", Json()).dump() : "-";
}

/// In their order.
const std::vector<Column> all_columns{
    {"", "stage/variant", 0, 0, nullptr, label},
    {"", "tiles", 6, 8, nullptr, tiles},
    {"extra_memory_bytes", "extra\nmemory", 4, 2, bytes_text},
    {"hbm_read_bytes", "read", 7, 5, bytes_text},
    {"hbm_written_bytes", "written", 7, 6, bytes_text},
    {"moved_bytes", "moved", 3, 1, bytes_text},
    {"", "bytes", -1, 8, nullptr, as_predicted},
    {"time.median_ms", "median\nms", 1, -1, number},
    {"time.min_ms", "min\nms", 11, -1, number},
    {"time.max_ms", "max\nms", 11, -1, number},
    {"time.enqueue_ms", "enqueue\nms", 12, -1, number},
    {"tflops", "TFLOP/s", 1, -1, number},
    {"percent_of_peak", "% of\npeak", 2, -1, number},
    {"counters.sectors", "sectors", -1, 4, count},
    {"counters.barriers", "barriers", -1, 3, count},
    {"counters.warp_operations", "warp\nops", -1, 7, count},
    {"counters.bank_conflicts", "bank\nconflicts", -1, 4, count},
    {"max_error", "max\nerror", 5, 9, number},
    {"verdict", "verdict", 0, 0},
    {"idea", "new idea", 13, 13},
};

/// Of the table of --tune.
const std::vector<Column> tune_columns{
    {"", "stage/variant", 0, 0, nullptr, label},
    {"pass", "pass"},
    {"", "problem", 0, 0, nullptr, [](const Row& row) { return describe(row.problem()); }},
    {"", "default", 0, 0, nullptr, [](const Row& row) { return tuned_tiles(row, "default"); }},
    {"", "fastest", 0, 0, nullptr, [](const Row& row) { return tuned_tiles(row, "fastest"); }},
    {"verdict", "verdict"},
};

using Group = std::vector<Row>;  // of one pass, problem and device
using Shown = std::vector<Column>;

std::string one_line_title(const Column& column) {
  std::string title = column.title;
  std::replace(title.begin(), title.end(), '\n', ' ');
  return title;
}

template <class Texts>
std::string joined(const Texts& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

TextTable table_of(const Group& rows, const Shown& shown) {
  std::vector<std::string> header;
  std::vector<TextTable::Align> align;
  for (const Column& column : shown) {
    header.push_back(column.title);
    align.push_back(column.figure != nullptr ? TextTable::Align::right : TextTable::Align::left);
  }
  TextTable table(header, align);
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Column& column : shown) cells.push_back(column.cell(row));
    table.add(cells);
  }
  return table;
}

/// A table's columns: those with the same cell in all rows go to `shared`, then those without which it fits `width` to `gone`.
Shown columns_of(const Group& rows, std::size_t width, std::vector<std::string>& shared, std::set<std::string>& gone) {
  const Backend backend = rows.front().backend();
  Shown shown;
  for (const Column& column : all_columns) {
    if (column.rank(backend) < 0) continue;
    const std::string first = column.cell(rows.front());
    const bool alike = std::all_of(rows.begin(), rows.end(), [&](const Row& row) { return column.cell(row) == first; });
    if (!alike || column.text == label || column.path == "idea" || (rows.size() == 1 && first != "-")) {
      shown.push_back(column);
    } else if (first != "-") {
      shared.push_back(one_line_title(column) + " " + first);
    }
  }
  while (table_of(rows, shown).width() > width) {
    const auto least = std::max_element(shown.begin(), shown.end(),
                                        [&](const Column& a, const Column& b) { return a.rank(backend) < b.rank(backend); });
    if (least->rank(backend) == 0) break;
    if (least->path != "idea") gone.insert(one_line_title(*least));
    shown.erase(least);
  }
  return shown;
}

/// Which problem, where, what the columns count, and what all rows share.
std::string heading_of(const Row& first, const std::vector<std::string>& shared) {
  const Problem problem = first.problem();
  std::string text = std::string(to_string(first.pass())) + ", " + describe(problem) + "\n";
  if (first.backend() == Backend::gpu) {
    text += wrapped("on " + first.device_name() +
                    "; cold L2; bytes are the simulator's counts of one head group, times B*Hkv, of what threads "
                    "request from global memory, before caches");
  } else {
    text += "on the CPU simulator of sm_" + std::to_string(first.simulated_sm()) + ": exact counts; they are not times\n";
    text += "bytes and 32-byte sectors are what threads request from memory, before caches";
  }
  text += "\nany implementation must move " + bytes_text(compulsory_bytes(problem, first.pass())) + " and do " +
          number_text(flops(problem, first.pass()) / 1e9) + " GFLOP\n";
  return shared.empty() ? text : text + wrapped("all rows: " + joined(shared)) + "\n";
}

/// The table, below each row its idea where there is no column for it and it is not in `told`, and at the end what went wrong.
std::string with_messages(const Group& rows, const Shown& shown, std::set<std::string>& told) {
  std::istringstream table(table_of(rows, shown).text(0, /*rule=*/true));
  const bool beside = shown.back().path == "idea" || rows.front().is_tuned();
  std::string text, line;
  while (!line.starts_with("--") && std::getline(table, line)) text += line + "\n";
  for (const Row& row : rows) {
    std::getline(table, line);
    text += line + "\n";
    const std::string idea = row.text("idea");
    if (!beside && !idea.empty() && told.insert(row.label() + idea).second) text += wrapped("  " + idea, 2) + "\n";
  }
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
  std::set<std::string> left_out, told;
  std::string text = tuned.empty() ? "" : "\n" + with_messages(tuned, tune_columns, told);
  for (const Group& group : groups_of(rows)) {
    std::vector<std::string> shared;
    const Shown shown = columns_of(group, width, shared, left_out);
    text += "\n" + heading_of(group.front(), shared) + "\n" + with_messages(group, shown, told);
  }
  if (left_out.empty()) return text;
  return text + "\n" + wrapped("Columns left out: " + joined(left_out) + ". --wide shows them; --json holds all.") +
         "\n";
}

}  // namespace flash
