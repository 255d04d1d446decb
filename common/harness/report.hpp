// The results of a run as one JSON object for programs, and as text for people, made from that.
#pragma once

#include "common/harness/options.hpp"
#include "common/harness/tiles.hpp"
#include "common/machine/device.hpp"
#include "common/reference/reference.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace flash {

/// The simulator's findings about the threads of a run, and about the cause of a wrong result.
struct Diagnosis {
  std::vector<std::string> mistakes;  ///< races: wrong whatever the result is
  std::vector<std::string> hints;     ///< where to look, if the result is wrong
  std::vector<std::string> rules;     ///< ids of what was found (common/machine/rules.hpp), in the same order, each once
  bool complete = true;               ///< false: of a large problem only the first accesses were looked at
};

/// The kernel, problem, inputs and device of a run.
struct Heading {
  StageInfo stage;
  Variant variant;
  Pass pass = Pass::forward;
  DeviceInfo device;
  FullProblem problem;
  InputKind input = InputKind::normal;
  std::uint64_t seed = 0;
  std::string load;  ///< folder of the inputs; empty: made from the seed
  std::string note;  ///< one line about the inputs
  std::size_t workspace_bytes = 0;
};

/// One finished run. What was not asked for is absent.
struct RunRecord : Heading {
  std::optional<Tiles> tiles;  ///< of the pass; absent if the variant has nothing to choose
  std::optional<CheckReport> check;
  std::optional<float> largest_score;  ///< of the worst row, if it explains why the check failed; may be infinite or NaN
  std::optional<Diagnosis> diagnosis;  ///< CPU
  std::vector<std::string> remarks;    ///< CPU: right, but wasteful
  std::optional<Timing> timing;        ///< GPU with --bench
  std::optional<Counters> counters;    ///< CPU
  Prediction predicted;                ///< traffic in bytes; empty: the variant has no formula
  std::vector<std::string> saved;      ///< files of --save

  /// The result is right, and no two threads race for memory; also if neither was looked at.
  bool passed() const { return (!check || check->passed) && (!diagnosis || diagnosis->mistakes.empty()); }
};

/// One of the compiled tile sizes, run.
struct TunedTiles {
  TileChoice choice;
  std::size_t blocks_per_sm = 0;  ///< that fit by their shared memory
  std::optional<CheckReport> check;
  std::optional<Timing> timing;      ///< GPU, if the check did not fail
  std::optional<Counters> counters;  ///< CPU

  bool passed() const { return !check || check->passed; }
};

/// A run of --tune.
struct TuneRecord {
  Heading run;
  std::vector<TunedTiles> choices;  ///< the default first

  bool passed() const {
    return std::all_of(choices.begin(), choices.end(), [](const TunedTiles& tuned) { return tuned.passed(); });
  }
};

enum class Format { text, json };

/// Several readable lines, or one JSON object in which numbers that are not finite become null.
std::string report_of(const RunRecord&, Format);
std::string report_of(const TuneRecord&, Format);

/// The answers to --list and --list --json.
std::string list_of(const StageInfo&, const std::vector<Variant>&, const TilesToList&, Format);

}  // namespace flash
