// The command line of a program: its options, each parsed whole or refused in one line that says what was given and what is allowed, and the exit
// code of an error.
#pragma once

#include "common/attention/problem.hpp"
#include "common/machine/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace flash {

/// A whole number from `low` to `high`. UsageError otherwise; the message names `option`.
std::int64_t parse_whole_number(const std::string& option, const std::string& text, std::int64_t low,
                                std::int64_t high = std::numeric_limits<std::int64_t>::max());

/// The same, from 1 to `high`.
int parse_int(const std::string& option, const std::string& text, int high = std::numeric_limits<int>::max());

/// A whole number from 0 to 2^64-1, or UsageError.
std::uint64_t parse_seed(const std::string& option, const std::string& text);

/// Two whole numbers, "64,32". UsageError with what is `allowed`.
std::array<int, 2> parse_pair(const std::string& option, const std::string& text, std::int64_t low, std::int64_t high,
                              const std::string& allowed);

/// "1024,0", or UsageError.
Window parse_window(const std::string& option, const std::string& text);

/// "100,0,7:20": the lengths of sequences, each of its queries and keys or of either; or UsageError.
Sequences parse_lengths(const std::string& option, const std::string& text);

/// A finite fp32 number, or UsageError.
float parse_finite(const std::string& option, const std::string& text);

/// The value among `allowed` whose to_string() is `text`, or UsageError with the list.
template <class Enum, std::size_t count>
Enum parse_choice(const std::string& option, const std::string& text, const Enum (&allowed)[count]) {
  std::string list;
  for (const Enum value : allowed) {
    if (text == to_string(value)) return value;
    list += (list.empty() ? "" : ", ") + std::string(to_string(value));
  }
  throw UsageError(option + " is '" + text + "'; allowed: " + list);
}

/// For a message on stderr, which may quote what the user gave: control characters as \n and \x1b, so that the message stays one
/// line and cannot steer a terminal. UTF-8 is left alone.
std::string one_line(const std::string& text);

/// Runs a program's work. An error becomes one line on stderr and an exit code: 2 for a UsageError, 3 for a DeviceError or too little memory, 1
/// for anything else.
int guarded(const std::string& program, const std::function<int()>& work);

/// Adds an option with a value, which `use` parses.
CLI::Option* add_text(CLI::App&, const char* name, const char* type, const char* text,
                      const std::function<void(const std::string&)>& use);

/// Adds an option that names something. "" is refused.
CLI::Option* add_name(CLI::App&, const char* name, const char* type, const char* text, std::string& target);

/// Runs CLI11 and turns its exceptions into UsageError. Returns the text to print if the user asked for --help or --version; else ""
/// after a look at the environment (environment.hpp).
std::string parse_command_line(CLI::App& app, int argc, const char* const* argv);

}  // namespace flash
