// The command line of a stage program, its environment, and the exit code of an error.
#pragma once

#include "common/attention/option_table.hpp"
#include "common/attention/registry.hpp"
#include "common/harness/stage.hpp"

#include <functional>
#include <optional>
#include <string>

namespace flash {

enum class DeviceChoice { automatic, gpu, cpu };
constexpr auto spellings(DeviceChoice) { return std::array{"auto", "gpu", "cpu"}; }

struct Request {
  std::optional<Pass> pass;  ///< absent: the variant's own, forward if it has both
  std::string variant;       ///< empty: choose_variant() chooses
  GivenOptions problem;      ///< what of its options was given
  std::string load, save;    ///< folders; empty: not given
  DeviceChoice device = DeviceChoice::automatic;
  bool bench = false;
  int iterations = 20;
  std::optional<Tiles> tiles;  ///< of the pass; absent: the variant's default
  bool check = true;
  bool watch = true;  ///< on the CPU: look for races, and for why a result is wrong
  bool json = false;
  bool list = false;
  std::string answer;  ///< what --help or --version print; then there is nothing else to do
};

/// Reads the command line, and refuses environment variables FLASH_... that nobody reads, as misspelt ones would be. UsageError: one line.
Request parse_command_line(const StageInfo&, int argc, const char* const* argv);

/// Runs a program's work. An error becomes one line on stderr, in which control characters are \n and \x1b, and its exit code, code_and_message().
int exit_code_of(const std::string& program, const std::function<int()>& work);

}  // namespace flash
