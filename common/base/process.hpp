// Child processes: started without a shell, captured, and killed when they take too long. On Linux they end with this program, however it
// ends.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace flash {

struct ProcessResult {
  bool timed_out = false;  ///< it was killed
  int signal = 0;          ///< the signal that ended it, or 0
  int exit_code = 0;       ///< if it ended by itself; 127 if it cannot be started, and then `error` says why
  std::string output, error;
};

/// "" if the program ended well, else the last line that it wrote to stderr, and how it ended, where that says more than an exit code.
std::string complaint(const ProcessResult&);

/// Runs a program to its end. arguments[0] is a path, or a name that is looked for in PATH.
ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit);

struct ChildProcess;

/// A program that answers each line on its standard input by a line on its standard output: one that takes long to start.
class Conversation {
 public:
  explicit Conversation(std::vector<std::string> arguments);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  /// Is the program there? It is started by the first question, and by one after its end.
  bool runs() const { return child_ != nullptr; }

  /// The answer is `output`, with exit code 0. A program that has none within the limit is killed; how it ended, if it did, is told as
  /// run_process() does.
  ProcessResult ask(const std::string& question, std::chrono::milliseconds limit);

 private:
  std::vector<std::string> arguments_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace flash
