// Child processes: started without a shell, captured, and killed when they take too long. On Linux they end with this program, however it
// ends.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace flash {

struct ProcessResult {
  bool timed_out = false;  ///< it was killed
  int signal = 0;          ///< the signal that ended it, or 0
  int exit_code = 0;       ///< if it ended by itself; 127 if it cannot be started, and then `error` says why
  std::string output, error;
};

/// Runs a program to its end. arguments[0] is a path, or a name that is looked for in PATH.
ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

}  // namespace flash
