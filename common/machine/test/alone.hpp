// Bugs that end the program they are found in run in a process of their own: this program again, with the bug's name as its argument.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace flash {

inline const std::string alone_option = "--alone=";

struct Outcome {
  int exit_code;       ///< -1 if it did not exit by itself
  std::string output;  ///< and error messages
};

inline Outcome run_alone(const std::string& name) {
  Outcome outcome{-1, ""};
  std::array<char, 4096> part{};
  if (readlink("/proc/self/exe", part.data(), part.size() - 1) < 0) return outcome;
  std::FILE* const pipe = popen(("'" + std::string(part.data()) + "' " + alone_option + name + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  while (const std::size_t bytes = std::fread(part.data(), 1, part.size(), pipe)) outcome.output.append(part.data(), bytes);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

/// The name that this process is to run alone, "" if it is the test program itself.
inline std::string name_to_run_alone(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  return argument.starts_with(alone_option) ? argument.substr(alone_option.size()) : "";
}

}  // namespace flash
