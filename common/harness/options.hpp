// The whole command line of a stage program.
#pragma once

#include "common/attention/variant.hpp"
#include "common/harness/problem_options.hpp"

#include <string>

namespace flash {

/// A short problem that takes seconds on either device.
constexpr RequestedSizes default_sizes{};

enum class DeviceChoice { automatic, gpu, cpu };

inline constexpr DeviceChoice all_devices[]{DeviceChoice::automatic, DeviceChoice::gpu, DeviceChoice::cpu};

const char* to_string(DeviceChoice);

struct Options {
  Pass pass = Pass::forward;
  std::string variant;  ///< empty: the last one that takes the problem
  ProblemOptions problem;
  std::string load, save;  ///< folders; empty: not given
  DeviceChoice device = DeviceChoice::automatic;
  bool bench = false;
  int iterations = 20;
  std::optional<Tiles> tiles;  ///< of the pass; absent: the variant's default
  bool tune = false;           ///< run all compiled tile sizes
  bool check = true;
  bool watch = true;  ///< on the CPU: look for races, and for why a result is wrong
  bool json = false;
  bool list = false;
};

struct CommandLine {
  Options options;
  std::string answer;  ///< what --help or --version print; then there is nothing else to do
};

/// Throws UsageError with one line: what, got, allowed.
CommandLine parse_options(const StageInfo&, int argc, const char* const* argv);

}  // namespace flash
