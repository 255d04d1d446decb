// The results of a run as one JSON object for programs, and as text for people.
#pragma once

#include "common/attention/registry.hpp"
#include "common/harness/stage.hpp"
#include "common/machine/device.hpp"
#include "common/reference/reference.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

/// A rule that threads broke: its id (common/machine/rules.hpp), a sentence, and the places that it names.
struct BrokenRule {
  std::string rule, text;
  std::vector<std::string> lines;
};

/// What is known of a run's threads, and of the cause of a wrong result.
struct Diagnosis {
  std::vector<BrokenRule> mistakes;  ///< races: wrong whatever the result is
  std::vector<std::string> rules;    ///< of mistakes and hints, in the same order, each once
  std::vector<std::string> hints;    ///< where to look, if the result is wrong
  std::string remark;                ///< right, but wasteful
  bool watched = false;              ///< on the CPU: the simulator has looked at every access
  bool complete = true;              ///< false: of a large problem only at the first ones
};

/// One finished run. What was not asked for is absent.
struct RunRecord {
  StageInfo stage;
  Variant variant;
  Pass pass = Pass::forward;
  DeviceInfo device;
  FullProblem problem;
  std::string load;  ///< folder of the inputs; empty: made from the seed
  std::string note;  ///< one line about the inputs
  std::size_t workspace_bytes = 0;
  std::optional<Tiles> tiles;  ///< of the pass; absent if the variant has nothing to choose
  std::optional<CheckReport> check;
  Diagnosis diagnosis;
  std::optional<Timing> timing;      ///< GPU with --bench
  std::optional<Counters> counters;  ///< CPU
  Prediction predicted;              ///< traffic in bytes; empty: the variant has no formula
  std::vector<std::string> saved;    ///< files of --save

  /// The result is right, and no two threads race for memory; also if neither was looked at.
  bool passed() const { return (!check || check->passed) && diagnosis.mistakes.empty(); }
};

/// One JSON object, in which numbers that are not finite become null.
std::string json_of(const RunRecord&);

/// Several readable lines.
std::string text_of(const RunRecord&);

/// The answer to --list, or to --list --json. Tiles are those of the problem on such a device, for each of these head dimensions.
std::string list_of(const StageInfo&, const std::vector<Variant>&, const FullProblem&, const std::vector<int>& head_dims,
                    const DeviceLimits&, bool as_json);

}  // namespace flash
