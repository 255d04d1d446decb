// Child processes: started without a shell, captured, and killed when they take too long.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace flash {

struct ProcessResult {
  bool started = false;    ///< false: no such program, or it may not be executed; `error` has the reason
  bool timed_out = false;  ///< it was killed
  int signal = 0;          ///< the signal that ended it, or 0
  int exit_code = 0;       ///< if it ended by itself
  std::string output, error;
};

/// Runs a program to its end. arguments[0] is a path, or a name that is looked for in PATH.
ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

}  // namespace flash
