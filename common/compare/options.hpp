// The command line of the comparison program.
#pragma once

#include "common/harness/options.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace flash {

struct CompareOptions {
  ProblemOptions problem;
  std::string sweep_name;                  ///< "seq", "batch", "heads", "head-dim"; empty: one problem
  std::vector<std::int64_t> sweep_values;  ///< doubling
  std::vector<Pass> passes{Pass::forward, Pass::backward};
  std::vector<std::string> only;      ///< "02" or "02_safe_softmax"; empty: all
  std::vector<std::string> variants;  ///< names; empty: all
  DeviceChoice device = DeviceChoice::automatic;
  int iterations = 20;
  std::chrono::seconds time_limit{600};  ///< of each run
  std::string bin;                       ///< folder of the stage programs; empty: the one this program lies in
  bool json = false, csv = false;
  std::string save;  ///< file for the rows as JSON; empty: none
};

struct CompareCommand {
  CompareOptions options;
  std::string answer;  ///< what --help or --version print
};

/// Throws UsageError with one line.
CompareCommand parse_compare_options(int argc, const char* const* argv);

/// The problem sizes of each step of the sweep, or of the one problem, over the default sizes for the device.
std::vector<RequestedSizes> sizes_to_run(const CompareOptions&, Backend);

}  // namespace flash
