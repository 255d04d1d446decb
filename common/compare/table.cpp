#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace flash {
namespace {

using Align = TextTable::Align;

/// Rows of one pass, problem and device.
using Group = std::vector<Row>;

std::string short_number(double value) { return number_text(value); }
std::string whole_number(double value) { return count_text(static_cast<std::uint64_t>(value)); }

/// What a column shows of a row.
struct Column {
  std::string title;
  int rank;  ///< where there is no room, the highest goes first; 0 stays
  Align align;
  std::function<std::string(const Row&)> cell;
};

std::string or_dash(const std::optional<double>& value, std::string (*text)(double)) { return value ? text(*value) : "-"; }

Column figure(const char* title, int rank, std::vector<const char*> path, std::string (*text)(double)) {
  return {title, rank, Align::right, [=](const Row& row) {
            return or_dash(path.size() == 1 ? row.number({path[0]}) : row.number({path[0], path[1]}), text);
          }};
}

/// `predicted`: is there any row of which the bytes are?
std::vector<Column> columns_for(Backend backend, bool predicted) {
  const bool gpu = backend == Backend::gpu;
  std::vector<Column> all{
      {"stage/variant", 0, Align::left, [](const Row& row) { return row.label(); }},
      {"tiles", gpu ? 6 : 8, Align::left, [](const Row& row) { return row.tiles().value_or("-"); }},
      figure("extra\nmemory", 4, {"extra_memory_bytes"}, bytes_text),
      figure("predicted\nread", gpu ? 8 : 3, {"predicted", "read_bytes"}, bytes_text),
      figure("bytes\nread", gpu ? 3 : 2, {"hbm_read_bytes"}, bytes_text),
      figure("predicted\nwritten", 8, {"predicted", "written_bytes"}, bytes_text),
      figure("bytes\nwritten", gpu ? 7 : 3, {"hbm_written_bytes"}, bytes_text),
  };
  if (!predicted) std::erase_if(all, [](const Column& column) { return column.title.starts_with("predicted"); });
  if (gpu) {
    all.push_back(figure("median\nms", 1, {"time", "median_ms"}, short_number));
    all.push_back(figure("min\nms", 11, {"time", "min_ms"}, short_number));
    all.push_back(figure("max\nms", 11, {"time", "max_ms"}, short_number));
    all.push_back(figure("enqueue\nms", 12, {"time", "enqueue_ms"}, short_number));
    all.push_back(figure("TFLOP/s", 1, {"tflops"}, short_number));
    all.push_back(figure("% of\npeak", 2, {"percent_of_peak"}, short_number));
  } else {
    all.push_back(figure("sectors", 7, {"counters", "sectors"}, whole_number));
    all.push_back(figure("barriers", 6, {"counters", "barriers"}, whole_number));
    all.push_back(figure("warp\nops", 9, {"counters", "warp_operations"}, whole_number));
    all.push_back(figure("bank\nconflicts", 7, {"counters", "bank_conflicts"}, whole_number));
  }
  all.push_back({"max\nerror", 5, Align::right, [](const Row& row) { return or_dash(row.max_error(), short_number); }});
  all.push_back({"verdict", 0, Align::left, [](const Row& row) { return to_string(row.verdict); }});
  all.push_back({"new idea", 10, Align::left, [](const Row& row) { return row.idea; }});
  return all;
}

TextTable table_of(const Group& rows, const std::vector<Column>& columns) {
  std::vector<std::string> header;
  std::vector<Align> align;
  for (const Column& column : columns) {
    header.push_back(column.title);
    align.push_back(column.align);
  }
  TextTable table(header, align);
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Column& column : columns) cells.push_back(column.cell(row));
    table.add(cells);
  }
  return table;
}

/// Takes columns away until all tables fit; returns their titles.
std::vector<std::string> fit(std::vector<Column>& columns, const std::vector<Group>& groups, std::size_t width) {
  const auto fits = [&](const Group& group) { return table_of(group, columns).width() <= width; };
  std::vector<std::string> gone;
  while (!std::all_of(groups.begin(), groups.end(), fits)) {
    const auto least =
        std::max_element(columns.begin(), columns.end(), [](const Column& a, const Column& b) { return a.rank < b.rank; });
    if (least->rank == 0) break;
    std::string title = least->title;
    std::replace(title.begin(), title.end(), '\n', ' ');
    gone.push_back(title);
    columns.erase(least);
  }
  return gone;
}

/// Why FlashAttention-2 reads more than FlashAttention-1 where a problem is small. "" if it is not, or does not.
std::string note_on_small_tiles(const Group& rows) {
  constexpr int large_tile = 128, sms = 132;  // rows of Q; of an H200, whose SMs the simulator counts on
  const Problem& p = rows.front().problem;
  const bool small = rows.front().simulated_sm() == 90 && 1LL * p.B * p.H * ((p.Nq + large_tile - 1) / large_tile) < sms;
  std::optional<double> first, second;
  for (const Row& row : rows) {
    const std::optional<double> read = row.number({"hbm_read_bytes"});
    if (row.stage == "04_fa1_forward") first = read;
    if (row.stage == "06_fa2_forward") second = std::max(second, read);
  }
  if (!small || !first || second <= first) return "";
  return wrapped(
             "06_fa2_forward reads more than 04_fa1_forward here: it reads K and V once for each tile of Q, and a problem this "
             "small "
             "gets small tiles, so that more of the GPU's SMs have a block. See docs/06_fa2_forward.md.") +
         "\n";
}

/// Which problem, where, and what the columns count.
std::string heading_of(const Row& first, const std::vector<Column>& columns) {
  const bool sectors =
      std::any_of(columns.begin(), columns.end(), [](const Column& column) { return column.title == "sectors"; });
  std::string text = std::string(to_string(first.pass)) + ", " + describe(first.problem) + "\n";
  if (first.backend() == Backend::gpu) {
    text += wrapped("on " + first.device_name() +
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

std::string messages_of(const Group& rows) {
  std::string text;
  for (const Row& row : rows) {
    if (row.verdict != Verdict::ok && !row.message.empty()) text += row.label() + ": " + row.message + "\n";
  }
  return text;
}

/// Of rows of --tune: a line for each.
std::string tiles_table(const Group& rows) {
  TextTable table({"stage/variant", "pass", "problem", "default", "fastest", "verdict"},
                  {Align::left, Align::left, Align::left, Align::left, Align::left, Align::left});
  for (const Row& row : rows) {
    const auto tiles = [&](const char* which) {
      const Json& of = row.report["tune"].value(which, Json());
      return of.is_object() ? of.value("br", Json()).dump() + "," + of.value("bc", Json()).dump() : std::string("-");
    };
    table.add(
        {row.label(), to_string(row.pass), describe(row.problem), tiles("default"), tiles("fastest"), to_string(row.verdict)});
  }
  return table.text(0, /*rule=*/true) + messages_of(rows);
}

std::vector<Group> groups_of(const std::vector<Row>& rows) {
  std::vector<std::pair<std::string, Group>> groups;
  for (const Row& row : rows) {
    // All CPUs count the same.
    const std::string device =
        row.backend() == Backend::gpu ? "gpu " + row.device_name() : "cpu " + std::to_string(row.simulated_sm());
    const std::string key = describe(row.problem) + to_string(row.pass) + device;
    const auto same = [&](const auto& group) { return group.first == key; };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    found->second.push_back(row);
  }
  std::vector<Group> all;
  for (auto& group : groups) all.push_back(std::move(group.second));
  return all;
}

}  // namespace

std::string comparison_tables(const std::vector<Row>& every, std::size_t width) {
  std::vector<Row> rows = every, tuned;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(tuned), [](const Row& row) { return row.is_tuned(); });
  std::erase_if(rows, [](const Row& row) { return row.is_tuned(); });
  const std::vector<Group> groups = groups_of(rows);
  std::string text = tuned.empty() ? "" : "\n" + tiles_table(tuned);
  std::vector<std::string> left_out;
  std::map<Backend, std::vector<Column>> columns;
  for (const Backend backend : {Backend::gpu, Backend::cpu}) {
    std::vector<Group> here;
    std::copy_if(groups.begin(), groups.end(), std::back_inserter(here),
                 [&](const Group& group) { return group.front().backend() == backend; });
    const bool predicted = std::any_of(rows.begin(), rows.end(), [](const Row& row) {
      return row.number({"predicted", "read_bytes"}).has_value();
    });
    columns[backend] = columns_for(backend, predicted);
    for (const std::string& title : fit(columns[backend], here, width)) {
      if (std::find(left_out.begin(), left_out.end(), title) == left_out.end()) left_out.push_back(title);
    }
  }
  for (const Group& rows_here : groups) {
    const std::vector<Column>& shown = columns[rows_here.front().backend()];
    text += "\n" + heading_of(rows_here.front(), shown) + "\n" + table_of(rows_here, shown).text(0, /*rule=*/true);
    text += messages_of(rows_here);
    if (rows_here.front().backend() == Backend::cpu) text += note_on_small_tiles(rows_here);
  }
  if (left_out.empty()) return text;
  std::string titles;
  for (const std::string& title : left_out) titles += (titles.empty() ? "" : ", ") + title;
  return text + "\n" + wrapped("Columns left out: " + titles + ". --wide shows them; --json and --csv hold all.") + "\n";
}

}  // namespace flash
