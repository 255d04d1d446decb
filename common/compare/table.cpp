#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/harness/memory.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <utility>

namespace flash {
namespace {

using Align = TextTable::Align;

std::string or_dash(const std::optional<double>& value, std::string (*text)(double)) { return value ? text(*value) : "-"; }
std::string short_number(double value) { return number_text(value); }
std::string whole_number(double value) { return count_text(static_cast<std::uint64_t>(value)); }

/// The columns between the bytes and the error: times on a GPU, counts on the CPU.
struct Column {
  const char* title;
  std::vector<const char*> path;
  std::string (*text)(double);
};

std::vector<Column> device_columns(Backend backend) {
  if (backend == Backend::gpu) {
    return {{"median ms", {"time", "median_ms"}, short_number},
            {"TFLOP/s", {"tflops"}, short_number},
            {"% of peak", {"percent_of_peak"}, short_number}};
  }
  return {{"sectors", {"counters", "sectors"}, whole_number},
          {"barriers", {"counters", "barriers"}, whole_number},
          {"warp ops", {"counters", "warp_operations"}, whole_number},
          {"bank conflicts", {"counters", "bank_conflicts"}, whole_number}};
}

std::optional<double> number_at(const Row& row, const std::vector<const char*>& path) {
  return path.size() == 1 ? row.number({path[0]}) : row.number({path[0], path[1]});
}

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

/// All rows are of one pass, problem and device.
std::string comparison_table(const std::vector<Row>& rows) {
  const Problem& problem = rows.front().problem;
  const Pass pass = rows.front().pass;
  const Backend backend = rows.front().backend();
  std::string text = std::string(to_string(pass)) + ", " + describe(problem) + "\n";
  text += backend == Backend::gpu
              ? "on " + rows.front().device_name() +
                    "; cold L2; bytes are the simulator's counts of one head group, times B*Hkv,\n"
                    "of what threads ask of global memory, before caches\n"
              : "on the CPU simulator: exact counts; they are not times\n"
                "bytes are what threads ask of global memory, before caches; sectors of 32 bytes are what warps ask\n";
  text += "any implementation must move " + bytes_text(compulsory_bytes(problem, pass)) + " and do " +
          number_text(flops(problem, pass) / 1e9) + " GFLOP\n\n";

  const std::vector<Column> columns = device_columns(backend);
  std::vector<std::string> header{"stage/variant", "tiles", "extra memory", "bytes read", "bytes written"};
  std::vector<Align> align{Align::left, Align::left, Align::right, Align::right, Align::right};
  for (const Column& column : columns) {
    header.emplace_back(column.title);
    align.push_back(Align::right);
  }
  for (const char* title : {"max error", "verdict", "new idea"}) header.emplace_back(title);
  align.insert(align.end(), {Align::right, Align::left, Align::left});

  TextTable table(header, align);
  for (const Row& row : rows) {
    std::vector<std::string> cells{
        row.label(), row.tiles().value_or("-"), or_dash(row.number({"extra_memory_bytes"}), bytes_text),
        or_dash(row.number({"hbm_read_bytes"}), bytes_text), or_dash(row.number({"hbm_written_bytes"}), bytes_text)};
    for (const Column& column : columns) cells.push_back(or_dash(number_at(row, column.path), column.text));
    cells.push_back(or_dash(row.max_error(), short_number));
    cells.emplace_back(to_string(row.verdict));
    cells.push_back(row.idea);
    table.add(cells);
  }
  text += table.text(0, /*rule=*/true);
  for (const Row& row : rows) {
    if (row.verdict != Verdict::ok && !row.message.empty()) text += row.label() + ": " + row.message + "\n";
  }
  return text;
}

}  // namespace

std::string comparison_tables(const std::vector<Row>& rows) {
  std::vector<std::pair<std::string, std::vector<Row>>> groups;
  for (const Row& row : rows) {
    const std::string device = row.backend() == Backend::gpu ? "gpu " + row.device_name() : "cpu";  // all CPUs count the same
    const std::string key = describe(row.problem) + to_string(row.pass) + device;
    const auto same = [&](const auto& group) { return group.first == key; };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    found->second.push_back(row);
  }
  std::string text;
  for (const auto& group : groups) text += "\n" + comparison_table(group.second);
  return text;
}

std::string csv_text(const std::vector<Row>& rows) {
  const std::vector<std::string> paths{"date",
                                       "commit",
                                       "stage",
                                       "variant",
                                       "pass",
                                       "device.kind",
                                       "device.name",
                                       "problem.batch",
                                       "problem.heads",
                                       "problem.kv_heads",
                                       "problem.seq_q",
                                       "problem.seq_k",
                                       "problem.head_dim",
                                       "problem.causal",
                                       "problem.bias",
                                       "problem.dtype",
                                       "problem.layout",
                                       "tiles.br",
                                       "tiles.bc",
                                       "extra_memory_bytes",
                                       "compulsory_bytes",
                                       "hbm_read_bytes",
                                       "hbm_written_bytes",
                                       "flops",
                                       "time.median_ms",
                                       "time.min_ms",
                                       "time.max_ms",
                                       "time.enqueue_ms",
                                       "time.first_enqueue_ms",
                                       "tflops",
                                       "percent_of_peak",
                                       "counters.sectors",
                                       "counters.barriers",
                                       "counters.warp_operations",
                                       "counters.bank_conflicts",
                                       "max_error",
                                       "verdict",
                                       "idea",
                                       "message"};
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
