#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace flash {
namespace {

using Cell = std::function<std::string(const Row&)>;  // "-" if the row has no such value

enum class Shown { always, wide };

struct Column {
  std::string title;
  Shown shown;
  Cell cell;
  TextTable::Align align = TextTable::Align::right;
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

std::string tiles(const Row& row) {
  const std::optional<double> Br = row.number("tiles.br"), Bc = row.number("tiles.bc");
  return Br && Bc ? count(*Br) + "," + count(*Bc) : "-";
}

/// As counted, or on a GPU as predicted.
std::string moved(const Row& row) {
  for (const std::string from : {"counters", "predicted"}) {
    const std::optional<double> read = row.number(from + ".read_bytes"), written = row.number(from + ".written_bytes");
    if (read && written) return bytes_text(*read + *written);
  }
  return "-";
}

std::string as_predicted(const Row& row) {
  for (const std::string bytes : {"read_bytes", "written_bytes"}) {
    const Json predicted = row.at("predicted." + bytes), counted = row.at("counters." + bytes);
    if (predicted.is_null() || counted.is_null()) return "-";
    if (predicted != counted) return "not as predicted";
  }
  return "as predicted";
}

const std::vector<Column> all_columns{
    {"stage/variant", Shown::always, label, TextTable::Align::left},
    {"tiles", Shown::wide, tiles, TextTable::Align::left},
    {"extra\nmemory", Shown::always, figure("extra_memory_bytes", bytes_text)},
    {"read", Shown::wide, figure("counters.read_bytes", bytes_text)},
    {"written", Shown::wide, figure("counters.written_bytes", bytes_text)},
    {"moved", Shown::always, moved},
    {"bytes", Shown::wide, as_predicted, TextTable::Align::left},
    {"median\nms", Shown::always, figure("time.median_ms", number)},
    {"min\nms", Shown::wide, figure("time.min_ms", number)},
    {"max\nms", Shown::wide, figure("time.max_ms", number)},
    {"enqueue\nms", Shown::wide, figure("time.enqueue_ms", number)},
    {"TFLOP/s", Shown::always, figure("tflops", number)},
    {"% of\npeak", Shown::wide, figure("percent_of_peak", number)},
    {"sectors", Shown::wide, figure("counters.sectors", count)},
    {"barriers", Shown::always, figure("counters.barriers", count)},
    {"warp\nops", Shown::wide, figure("counters.warp_operations", count)},
    {"bank\nconflicts", Shown::always, figure("counters.bank_conflicts", count)},
    {"verdict", Shown::always, words("verdict"), TextTable::Align::left},
    {"new idea", Shown::wide, words("idea"), TextTable::Align::left},
};

using Group = std::vector<Row>;  // of one pass, problem and device

/// The table, of the columns in which a row has a value.
std::string table_of(const Group& rows, bool wide) {
  std::vector<Column> shown;
  for (const Column& column : all_columns) {
    const bool has_values = std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return column.cell(row) != "-"; });
    if (has_values && (wide || column.shown == Shown::always)) shown.push_back(column);
  }
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
  return table.text(0, /*rule=*/true);
}

/// The problem, the device, and the units of the columns.
std::string heading_of(const Row& first) {
  const FullProblem problem = first.problem();
  std::string text = std::string(to_string(first.pass())) + ", " + describe(problem) + "\n";
  if (first.backend() == Backend::gpu) {
    text += wrapped("on " + first.device_name() +
                    "; cold L2; bytes are what threads request from memory, before caches, as the stage predicts them");
  } else {
    text += "on the CPU simulator of sm_" + std::to_string(first.simulated_sm()) + ": exact counts; they are not times\n";
    text += "bytes and 32-byte sectors are what threads request from memory, before caches";
  }
  return text + "\nany implementation must move " + bytes_text(compulsory_bytes(problem, first.pass())) + " and do " +
         number_text(flops(problem, first.pass()) / 1e9) + " GFLOP\n";
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

std::string comparison_tables(const std::vector<Row>& rows, bool wide) {
  std::string text;
  for (const Group& group : groups_of(rows)) {
    text += "\n" + heading_of(group.front()) + "\n" + table_of(group, wide);
    for (const Row& row : group) {
      const std::string message = row.text("message");
      if (!row.is_ok() && !message.empty()) text += row.label() + ": " + message + "\n";
    }
  }
  return text;
}

}  // namespace flash
