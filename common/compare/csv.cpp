// Rows as CSV.
#include "common/compare/table.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace flash {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// The value at a path such as "problem.seq_q", as CSV writes it: numbers with all their digits.
std::string csv_value(const Json& row, const std::string& path) {
  const Json* at = &row;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    const std::string key = path.substr(start, dot - start);
    if (!at->is_object() || !at->contains(key)) return "";
    at = &(*at)[key];
    start = dot + 1;
  }
  if (at->is_null()) return "";
  return at->is_string() ? csv_cell(at->get<std::string>()) : at->dump();
}

}  // namespace

std::string csv_text(const std::vector<Row>& rows) {
  std::istringstream columns(
      "date commit stage variant pass device.kind device.name device.simulates_sm problem.batch "
      "problem.heads problem.kv_heads problem.seq_q problem.seq_k problem.head_dim problem.causal "
      "problem.bias problem.dtype problem.layout tiles.br tiles.bc extra_memory_bytes compulsory_bytes "
      "hbm_read_bytes hbm_written_bytes flops time.median_ms time.min_ms time.max_ms time.enqueue_ms "
      "time.first_enqueue_ms tflops percent_of_peak predicted.read_bytes predicted.written_bytes "
      "counters.sectors counters.barriers counters.warp_operations counters.bank_conflicts max_error verdict idea message");
  const std::vector<std::string> paths(std::istream_iterator<std::string>(columns), {});
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "" : ",") + path;
  text += "\n";
  for (const Row& row : rows) {
    Json json = row.json();
    if (const std::optional<double> error = row.max_error()) json["max_error"] = *error;
    std::string line;
    for (const std::string& path : paths) line += (&path == &paths.front() ? "" : ",") + csv_value(json, path);
    text += line + "\n";
  }
  return text;
}

}  // namespace flash
