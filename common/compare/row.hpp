// One row of the comparison: one variant, one pass, one problem. A file of rows has a JSON object per line. A run's row is appended as the run
// ends, so that an interrupted sweep leaves its rows.
#pragma once

#include "common/attention/variant.hpp"
#include "common/base/process.hpp"
#include "common/compare/sweep.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace flash {

using Json = nlohmann::ordered_json;

namespace verdict {
inline constexpr const char *ok = "ok", *wrong = "WRONG", *timed_out = "TIMED OUT";
inline constexpr const char* stopped = "STOPPED";     ///< the simulator stopped the kernel
inline constexpr const char* crashed = "CRASHED";     ///< ended by a signal, or without a report
inline constexpr const char* refused = "refused";     ///< the variant does not take this problem; not a failure
inline constexpr const char* no_room = "cannot run";  ///< not enough memory, or no device; not a failure
inline constexpr const char* skipped = "skipped";     ///< never started; only in old rows
}  // namespace verdict

/// Only row_from_json() makes rows, so that each has what every row needs, and nothing that schema() does not name.
struct Row {
  Json json;

  /// The value at a path such as "time.median_ms"; null if it is missing.
  Json at(const std::string& path) const;
  std::optional<double> number(const std::string& path) const;  ///< absent if it is none
  std::string text(const char* field) const { return json.value(field, ""); }

  std::string label() const { return text("stage") + "/" + text("variant"); }
  std::string verdict() const { return text("verdict"); }
  bool is_ok() const { return verdict() == verdict::ok; }
  Pass pass() const { return text("pass") == to_string(Pass::forward) ? Pass::forward : Pass::backward; }
  FullProblem problem() const;
  std::string device_name() const { return json.at("device").value("name", ""); }
  Backend backend() const { return json.at("device").value("kind", "") == "gpu" ? Backend::gpu : Backend::cpu; }
  int simulated_sm() const { return json.at("device").value("simulates_sm", 90); }

  /// The device as far as it matters: counts are the same on every processor, but not for every GPU that it simulates.
  std::string place() const;

  /// Rows with the same key are runs of the same thing, of which the latest holds.
  std::string key() const;

  std::size_t rounds() const;  ///< how often it was timed

  /// Adds the time of one more round. All rounds count alike: the median is the median of their medians.
  void add_round(const Row& again);
};

/// UsageError with what is wrong if it is no row.
Row row_from_json(const Json&);

std::string json_line(const Row&);

/// The row of a finished program. `known`: its fields whatever the program did; a report adds to them.
Row make_row(const Json& known, const ProcessResult&);

/// 0 if all is well; 1 after a failure; 2 or 3 if nothing ran at all, as the stage programs themselves ended. A run that the time limit ended
/// has failed only if its variant finished no problem in that pass, and so may hang; otherwise the problem is long, which a sweep is told to
/// expect.
int exit_code(const std::vector<Row>&);

/// The rows of a file, of those with the same key the latest, in the order of first appearance; none if there is no such file. UsageError with the
/// line if it holds anything else than rows.
std::vector<Row> read_rows(const std::string& file);

/// UsageError if the file cannot be written.
void append(const std::string& file, const std::string& lines);

/// A row's problem.
Json problem_json(const Case&);

}  // namespace flash
