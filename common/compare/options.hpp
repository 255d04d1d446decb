// The command line of the comparison program.
#pragma once

#include "common/compare/sweep.hpp"
#include "common/harness/options.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace flash {

struct CompareOptions {
  ProblemSet problems;
  std::vector<Pass> passes{Pass::forward, Pass::backward};
  bool stages = true, peers = false;
  std::vector<std::string> only;      ///< "02" or "02_safe_softmax"; empty: all stages
  std::vector<std::string> variants;  ///< names; empty: all
  bool last = false;                  ///< of each stage and pass the last variant alone
  DeviceChoice device = DeviceChoice::automatic;
  int iterations = 20;
  std::size_t rounds = 1;                ///< on a GPU: how often all runs are timed, in turns
  std::chrono::seconds time_limit{600};  ///< of each run
  std::string bin;                       ///< folder of the stage programs; empty: the one this program lies in
  bool wide = false;                     ///< all columns
  std::string save;                      ///< file that the rows are appended to; empty: none
  bool resume = false;                   ///< what has a row there is not run again
};

/// Returns what --help or --version print, or else "". Throws UsageError with one line.
std::string parse_compare_options(int argc, const char* const* argv, CompareOptions&);

}  // namespace flash
