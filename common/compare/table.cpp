#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <map>

namespace flash {
namespace {

/// Null if there is none.
Json value_of(const Row& row, const std::string& path) {
  const std::optional<double> error = path == "max_error" ? row.max_error() : std::nullopt;
  return error ? Json(*error) : row.at(path);
}

struct Column {
  std::string path;        ///< of the value in a row, and its name in CSV; "": not there
  std::string title = "";  ///< in tables; "": not there
  int gpu = -1, cpu = -1;  ///< in a table of such rows: where there is no room, the highest goes first; 0 stays; -1: not there
  std::string (*figure)(double) = nullptr;    ///< how a table writes it; null: it is text
  std::string (*text)(const Row&) = nullptr;  ///< what a table has in place of a value

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
std::string tiles(const Row& row) { return row.tiles().value_or("-"); }

/// "64,32": what --tune found to be the "default" or the "fastest".
std::string tuned_tiles(const Row& row, const char* which) {
  const Json& tiles = row.report["tune"].value(which, Json());
  return tiles.is_object() ? tiles.value("br", Json()).dump() + "," + tiles.value("bc", Json()).dump() : "-";
}

/// In their order.
const std::vector<Column> all_columns{
    {"date"},
    {"commit"},
    {"stage"},
    {"variant"},
    {"", "stage/variant", 0, 0, nullptr, label},
    {"pass"},
    {"device.kind"},
    {"device.name"},
    {"device.simulates_sm"},
    {"problem.batch"},
    {"problem.heads"},
    {"problem.kv_heads"},
    {"problem.seq_q"},
    {"problem.seq_k"},
    {"problem.head_dim"},
    {"problem.causal"},
    {"problem.bias"},
    {"problem.dtype"},
    {"problem.layout"},
    {"", "tiles", 6, 8, nullptr, tiles},
    {"tiles.br"},
    {"tiles.bc"},
    {"extra_memory_bytes", "extra\nmemory", 4, 4, bytes_text},
    {"compulsory_bytes"},
    {"predicted.read_bytes", "predicted\nread", 8, 3, bytes_text},
    {"hbm_read_bytes", "bytes\nread", 3, 2, bytes_text},
    {"predicted.written_bytes", "predicted\nwritten", 8, 8, bytes_text},
    {"hbm_written_bytes", "bytes\nwritten", 7, 3, bytes_text},
    {"flops"},
    {"time.median_ms", "median\nms", 1, -1, number},
    {"time.min_ms", "min\nms", 11, -1, number},
    {"time.max_ms", "max\nms", 11, -1, number},
    {"time.enqueue_ms", "enqueue\nms", 12, -1, number},
    {"time.first_enqueue_ms"},
    {"tflops", "TFLOP/s", 1, -1, number},
    {"percent_of_peak", "% of\npeak", 2, -1, number},
    {"counters.sectors", "sectors", -1, 7, count},
    {"counters.barriers", "barriers", -1, 6, count},
    {"counters.warp_operations", "warp\nops", -1, 9, count},
    {"counters.bank_conflicts", "bank\nconflicts", -1, 7, count},
    {"max_error", "max\nerror", 5, 5, number},
    {"verdict", "verdict", 0, 0},
    {"idea", "new idea", 10, 10},
    {"message"},
};

/// Of the table of --tune.
const std::vector<Column> tune_columns{
    {"", "stage/variant", 0, 0, nullptr, label},
    {"pass", "pass"},
    {"", "problem", 0, 0, nullptr, [](const Row& row) { return describe(row.problem); }},
    {"", "default", 0, 0, nullptr, [](const Row& row) { return tuned_tiles(row, "default"); }},
    {"", "fastest", 0, 0, nullptr, [](const Row& row) { return tuned_tiles(row, "fastest"); }},
    {"verdict", "verdict"},
};

/// Numbers with all their digits.
std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

using Group = std::vector<Row>;  // of one pass, problem and device
using Shown = std::vector<Column>;

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

/// The columns of these tables. Those without which they fit `width` go to `gone`. `predicted`: is there any row of which the bytes are?
Shown columns_of(const std::vector<Group>& groups, Backend backend, bool predicted, std::size_t width,
                 std::vector<std::string>& gone) {
  Shown shown = all_columns;
  std::erase_if(shown, [&](const Column& column) {
    return column.rank(backend) < 0 || (!predicted && column.path.starts_with("predicted."));
  });
  const auto fits = [&](const Group& group) {
    return group.front().backend() != backend || table_of(group, shown).width() <= width;
  };
  while (!std::all_of(groups.begin(), groups.end(), fits)) {
    const auto least = std::max_element(shown.begin(), shown.end(),
                                        [&](const Column& a, const Column& b) { return a.rank(backend) < b.rank(backend); });
    if (least->rank(backend) == 0) break;
    std::string title = least->title;
    std::replace(title.begin(), title.end(), '\n', ' ');
    if (std::find(gone.begin(), gone.end(), title) == gone.end()) gone.push_back(title);
    shown.erase(least);
  }
  return shown;
}

/// Why FlashAttention-2 reads more than FlashAttention-1 where a problem is small. "" if it is not, or does not.
std::string note_on_small_tiles(const Group& rows) {
  constexpr int large_tile = 128, sms = 132;  // rows of Q; of an H200, whose SMs the simulator counts on
  const Problem& p = rows.front().problem;
  const bool small = rows.front().simulated_sm() == 90 && 1LL * p.B * p.H * ((p.Nq + large_tile - 1) / large_tile) < sms;
  std::optional<double> first, second;
  for (const Row& row : rows) {
    const std::optional<double> read = row.number("hbm_read_bytes");
    if (row.stage == "04_fa1_forward") first = read;
    if (row.stage == "06_fa2_forward") second = std::max(second, read);
  }
  if (!small || !first || second <= first) return "";
  return wrapped(
             "06_fa2_forward reads more than 04_fa1_forward here: it reads K and V once for each tile of Q, and a problem this "
             "small gets small tiles, so that more of the GPU's SMs have a block. See docs/06_fa2_forward.md.") +
         "\n";
}

/// Which problem, where, and what the columns count.
std::string heading_of(const Row& first, const Shown& shown) {
  const bool sectors = std::any_of(shown.begin(), shown.end(), [](const Column& column) { return column.title == "sectors"; });
  std::string text = std::string(to_string(first.pass)) + ", " + describe(first.problem) + "\n";
  if (first.backend() == Backend::gpu) {
    text += wrapped("on " + first.text("device.name") +
                    "; cold L2; bytes are the simulator's counts of one head group, times B*Hkv, of what threads "
                    "ask of global memory, before caches");
  } else {
    text += "on the CPU simulator of sm_" + std::to_string(first.simulated_sm()) + ": exact counts; they are not times\n";
    text += wrapped(std::string("bytes are what threads ask of global memory, before caches") +
                    (sectors ? "; sectors of 32 bytes are what warps ask" : ""));
  }
  return text + "\nany implementation must move " + bytes_text(compulsory_bytes(first.problem, first.pass)) + " and do " +
         number_text(flops(first.problem, first.pass) / 1e9) + " GFLOP\n";
}

/// The table, and what went wrong below it.
std::string with_messages(const Group& rows, const Shown& shown) {
  std::string text = table_of(rows, shown).text(0, /*rule=*/true);
  for (const Row& row : rows) {
    if (row.verdict != Verdict::ok && !row.message.empty()) text += row.label() + ": " + row.message + "\n";
  }
  return text;
}

std::vector<Group> groups_of(const std::vector<Row>& rows) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> places;
  for (const Row& row : rows) {
    const auto [place, is_new] = places.try_emplace(describe(row.problem) + to_string(row.pass) + row.place(), groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].push_back(row);
  }
  return groups;
}

}  // namespace

std::string comparison_tables(const std::vector<Row>& every, std::size_t width) {
  std::vector<Row> rows, tuned;
  for (const Row& row : every) (row.is_tuned() ? tuned : rows).push_back(row);
  const std::vector<Group> groups = groups_of(rows);
  std::string text = tuned.empty() ? "" : "\n" + with_messages(tuned, tune_columns);
  const bool predicted =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.number("predicted.read_bytes"); });
  std::vector<std::string> left_out;
  std::map<Backend, Shown> shown;
  for (const Backend backend : {Backend::gpu, Backend::cpu}) {
    shown[backend] = columns_of(groups, backend, predicted, width, left_out);
  }
  for (const Group& group : groups) {
    const Row& first = group.front();
    const Shown& here = shown[first.backend()];
    text += "\n" + heading_of(first, here) + "\n" + with_messages(group, here);
    if (first.backend() == Backend::cpu) text += note_on_small_tiles(group);
  }
  if (left_out.empty()) return text;
  std::string titles;
  for (const std::string& title : left_out) titles += (titles.empty() ? "" : ", ") + title;
  return text + "\n" + wrapped("Columns left out: " + titles + ". --wide shows them; --json and --csv hold all.") + "\n";
}

std::string csv_text(const std::vector<Row>& rows) {
  const auto line = [](auto&& cell) {
    std::string text;
    for (const Column& column : all_columns) {
      if (!column.path.empty()) text += "," + cell(column);
    }
    return text.substr(1) + "\n";
  };
  std::string text = line([](const Column& column) { return column.path; });
  for (const Row& row : rows) text += line([&](const Column& column) { return csv_cell(value_of(row, column.path)); });
  return text;
}

}  // namespace flash
