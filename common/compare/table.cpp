#include "common/compare/table.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <utility>

namespace flash {
namespace {

using Align = TextTable::Align;

/// Rows of one pass, problem and device.
using Group = std::vector<Row>;

using Shown = std::vector<Column>;

TextTable table_of(const Group& rows, const Shown& shown) {
  std::vector<std::string> header;
  std::vector<Align> align;
  for (const Column& column : shown) {
    header.push_back(column.title);
    align.push_back(column.figure != nullptr ? Align::right : Align::left);
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
             "small "
             "gets small tiles, so that more of the GPU's SMs have a block. See docs/06_fa2_forward.md.") +
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
        row.backend() == Backend::gpu ? "gpu " + row.text("device.name") : "cpu " + std::to_string(row.simulated_sm());
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
    text += "\n" + heading_of(first, here) + "\n" + table_of(group, here).text(0, /*rule=*/true) + messages_of(group);
    if (first.backend() == Backend::cpu) text += note_on_small_tiles(group);
  }
  if (left_out.empty()) return text;
  std::string titles;
  for (const std::string& title : left_out) titles += (titles.empty() ? "" : ", ") + title;
  return text + "\n" + wrapped("Columns left out: " + titles + ". --wide shows them; --json and --csv hold all.") + "\n";
}

}  // namespace flash
