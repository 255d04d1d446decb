#include "common/compare/table.hpp"

#include "common/base/memory.hpp"
#include "common/harness/text_table.hpp"

namespace flash {
namespace {

std::string number(double value) { return number_text(value); }
std::string count(double value) { return count_text(static_cast<std::uint64_t>(value)); }
std::string label(const Row& row) { return row.label(); }
std::string tiles(const Row& row) { return row.tiles().value_or("-"); }

/// Null if there is none.
Json value_of(const Row& row, const std::string& path) {
  const std::optional<double> error = path == "max_error" ? row.max_error() : std::nullopt;
  const Json* value = row.at(path);
  return error ? Json(*error) : value != nullptr ? *value : Json();
}

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

}  // namespace

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

std::string Column::cell(const Row& row) const {
  if (text != nullptr) return text(row);
  const Json value = value_of(row, path);
  if (figure != nullptr && value.is_number()) return figure(value.get<double>());
  return value.is_string() ? value.get<std::string>() : "-";
}

std::string csv_text(const std::vector<Row>& rows) {
  std::vector<std::string> paths;
  for (const Column& column : all_columns) {
    if (!column.path.empty()) paths.push_back(column.path);
  }
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "" : ",") + path;
  text += "\n";
  for (const Row& row : rows) {
    std::string line;
    for (const std::string& path : paths) line += (&path == &paths.front() ? "" : ",") + csv_cell(value_of(row, path));
    text += line + "\n";
  }
  return text;
}

}  // namespace flash
