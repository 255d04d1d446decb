// What a run found out, as text for people and as one JSON object for programs.
#pragma once

#include "common/attention/device.hpp"
#include "common/harness/options.hpp"
#include "common/harness/tiles.hpp"
#include "common/reference/reference.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

/// Without subtracting a row's max, exp gives infinity above ln of the largest fp32 number, and loses bits and in the end
/// everything below ln of the smallest normal one, 2^-126. It is 0 below ln of half the smallest number of all, 2^-150 (-103.97).
constexpr float exp_overflows_beyond = 88.72f, exp_underflows_below = -87.34f;

/// What the simulator can tell of the threads of a run, and of why its result is wrong.
struct Diagnosis {
  std::vector<std::string> mistakes;  ///< races: wrong whatever the result is
  std::vector<std::string> hints;     ///< where to look, if the result is wrong
  bool complete = true;               ///< false: of a large problem only the first accesses were looked at
};

/// One finished run. What was not asked for is absent.
struct RunRecord {
  StageInfo stage;
  Variant variant;
  Pass pass = Pass::forward;
  DeviceInfo device;
  Problem problem;
  InputKind input = InputKind::normal;
  std::uint64_t seed = 0;
  std::string load;            ///< folder of the inputs; empty: made from the seed
  std::string note;            ///< one line about the inputs
  std::optional<Tiles> tiles;  ///< of the pass; absent if the variant has nothing to choose
  std::size_t workspace_bytes = 0;
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

/// A run of --tune. `run` has no results of its own.
struct TuneRecord {
  RunRecord run;
  std::vector<TunedTiles> choices;  ///< the default first

  bool passed() const;
  const TunedTiles* fastest() const;  ///< of those that were timed; null if none was
};

/// 10^12 FLOPs per second of the median.
double tflops(const Problem&, Pass, const Timing&);

/// The same of a run; 0 without a timing.
double tflops(const RunRecord&);

/// In percent of what the device's unit for this dtype can do; absent if there is no timing or the peak is not known.
std::optional<double> percent_of_peak(const RunRecord&);

/// Several lines, readable.
std::string text_report(const RunRecord&);
std::string text_report(const TuneRecord&);

/// One object; numbers that are not finite become null.
std::string json_report(const RunRecord&);
std::string json_report(const TuneRecord&);

/// The answers to --list and --list --json.
std::string list_text(const StageInfo&, const std::vector<Variant>&, const TilesToList&);
std::string list_json(const StageInfo&, const std::vector<Variant>&, const TilesToList&);

}  // namespace flash
