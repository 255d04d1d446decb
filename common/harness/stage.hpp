// The program around a stage's kernels. A stage's main.cpp calls run_stage() and does nothing else.
#pragma once

#include <string>

namespace flash {

/// A stage: a folder with its program.
struct StageInfo {
  std::string name;            ///< folder name, "01_naive"
  std::string idea;            ///< one line for reports and the comparison table
  std::string backward_stage;  ///< the stage that has a backward pass, if this one has none
};

/// Parses the command line (see --help), runs and checks one problem, prints one report. Returns the exit code:
/// 0 good; 1 the check failed; 2 bad usage or input; 3 no usable device or not enough memory.
int run_stage(const StageInfo&, int argc, char** argv);

}  // namespace flash
