// One row of the comparison: one variant, one pass, one problem.
#pragma once

#include "common/attention/variant.hpp"
#include "common/base/process.hpp"
#include "common/compare/stages.hpp"
#include "common/compare/sweep.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace flash {

using Json = nlohmann::ordered_json;

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

struct Row {
  std::string stage, variant, idea, kernel;
  Pass pass = Pass::forward;
  Problem problem;
  Verdict verdict = Verdict::ok;
  std::string message;  ///< what the program said on stderr if the verdict is not ok
  Json report;          ///< the program's JSON report; an empty object if there is none
  Json provenance;      ///< commit, date, sources

  std::string label() const { return stage + "/" + variant; }

  /// As the report says; a CPU if it says nothing.
  Backend backend() const;
  std::string device_name() const;

  /// The GPU that the simulator stood for; rows of old do not say it, and are of the default.
  int simulated_sm() const;

  /// A number of the report by its path ("time", "median_ms"); absent if it is missing or null.
  std::optional<double> number(std::initializer_list<const char*> path) const;

  bool is_tuned() const { return report.contains("tune"); }  ///< a row of --tune

  /// "64,32"; absent if the variant has one tile size alone.
  std::optional<std::string> tiles() const;

  /// The largest error of O (forward) or of the gradients (backward); absent without a check, infinity if not finite.
  std::optional<double> max_error() const;

  /// Report, idea, verdict, message and provenance in one object.
  Json json() const;
};

/// What a finished stage program means.
Row make_row(const Stage&, const ListedVariant&, Pass, const ProcessResult&);

/// A row that json() made, or that peers.py answered; json() gives the same again. UsageError with what is wrong if it is none.
Row row_from_json(const Json&);

/// Did anything fail? A run that the time limit ended counts only if its variant finished no problem in that pass, and so may hang;
/// otherwise the problem is long, which a sweep is told to expect.
bool any_failure(const std::vector<Row>&);

/// The rows as a JSON array with a row a line, so that a diff shows which of them changed.
std::string json_text(const std::vector<Row>&);

/// What a row says about its problem, if its program could not.
Json problem_json(const Case&);

}  // namespace flash
