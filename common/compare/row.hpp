// One row of the comparison: one variant, one pass, one problem.
#pragma once

#include "common/attention/variant.hpp"
#include "common/base/process.hpp"
#include "common/compare/stages.hpp"
#include "common/compare/sweep.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

enum class Verdict {
  ok,
  wrong,    ///< the check failed
  stopped,  ///< the simulator stopped the kernel
  crashed,  ///< ended by a signal, or without a report
  timed_out,
  refused,  ///< the variant does not take this problem; not a failure
  no_room,  ///< not enough memory, or no device; not a failure
  skipped,  ///< not started, since it would not fit or take too long; not a failure
};

const char* to_string(Verdict);

struct Run;

struct Row {
  std::string stage, variant;
  Pass pass = Pass::forward;
  Problem problem;
  Verdict verdict = Verdict::ok;
  std::string message;           ///< what the program said on stderr if the verdict is not ok
  Json report = Json::object();  ///< the program's JSON report; of a row that is complete, or was saved, all that it says

  std::string label() const { return stage + "/" + variant; }

  /// What the report has at a path such as "time.median_ms"; null if it is missing.
  Json at(std::string path) const;
  std::optional<double> number(const std::string& path) const;  ///< absent if it is none
  std::string text(const std::string& path) const;              ///< "" if it is none

  /// As the report says; a CPU if it says nothing.
  Backend backend() const { return text("device.kind") == "gpu" ? Backend::gpu : Backend::cpu; }

  /// The GPU that the simulator stood for; rows of old do not say it, and are of the default.
  int simulated_sm() const { return static_cast<int>(number("device.simulates_sm").value_or(90)); }

  /// What decides about its figures: counts are the same on every processor, but not for every GPU that it simulates.
  std::string place() const;

  bool is_tuned() const { return report.contains("tune"); }  ///< a row of --tune

  /// "64,32"; absent if the variant has one tile size alone.
  std::optional<std::string> tiles() const;

  /// The largest error of O (forward) or of the gradients (backward); absent without a check, infinity if not finite.
  std::optional<double> max_error() const;
};

/// A row of a run that has nothing to report.
Row empty_row(const Run&, Verdict, const std::string& message);

/// What a run's finished program means.
Row make_row(const Run&, const ProcessResult&);

/// A row that was saved. UsageError with what is wrong if it is none.
Row row_from_json(const Json&);

/// The row that peers.py answered, with the verdict that it gave.
Row peer_row(const Run&, const ProcessResult&);

/// The medians of all rounds so far, of a report that has a time.
std::vector<double> rounds_of(const Json& report);

/// Adds the times of one more round, of which each counts alike: the median is that of the rounds' medians.
void add_round(Json& report, const Json& again);

/// Did anything fail? A run that the time limit ended counts only if its variant finished no problem in that pass, and so may hang;
/// otherwise the problem is long, which a sweep is told to expect.
bool any_failure(const std::vector<Row>&);

/// The rows as a JSON array with a row a line, so that a diff shows which of them changed.
std::string json_text(const std::vector<Row>&);

/// What a row says about its problem, if its program could not.
Json problem_json(const Case&);

}  // namespace flash
