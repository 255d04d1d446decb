#include "common/harness/parse.hpp"

#include "common/attention/limits.hpp"
#include "common/harness/console.hpp"
#include "common/harness/environment.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <new>
#include <sstream>

namespace flash {
namespace {

template <class Integer>
Integer parse_integer(const std::string& option, const std::string& text, Integer low, Integer high) {
  Integer value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && stop == end && value >= low && value <= high) return value;
  throw UsageError(option + " is '" + text + "'; allowed: whole numbers from " + std::to_string(low) + " to " +
                   std::to_string(high));
}

/// From 2.5 on CLI11 wraps lines itself, at other columns than help_of(), and leaves a space at their ends; from 2.6 on it can be told not to
/// touch the description.
template <class Formatter>
void keep_lines_whole(Formatter& formatter) {
  constexpr std::size_t no_limit = 1 << 20;
  if constexpr (requires { formatter.right_column_width(no_limit); }) {
    formatter.right_column_width(no_limit);
    formatter.description_paragraph_width(no_limit);
  }
  if constexpr (requires { formatter.enable_description_formatting(false); }) formatter.enable_description_formatting(false);
}

/// CLI11's help, without lines longer than a terminal's. An option's text stays in its column.
std::string help_of(const CLI::App& app) {
  keep_lines_whole(*app.get_formatter());
  std::istringstream lines(app.help());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const bool of_option = line.starts_with("  ");
    line.erase(line.find_last_not_of(' ') + 1);
    if (line.empty() && text.ends_with("\n\n")) continue;
    text += wrapped(line, of_option ? help_column : 0) + "\n";
  }
  return text.substr(0, text.find_last_not_of('\n') + 2);
}

}  // namespace

std::string one_line(const std::string& text) {
  std::string line;
  const std::size_t end = text.find_last_not_of(" \n") + 1;  // CLI11 ends some messages with a newline
  for (std::size_t i = 0; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    constexpr const char* hex = "0123456789abcdef";
    if (byte == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    } else {
      line += text[i];
    }
  }
  return line;
}

std::int64_t parse_whole_number(const std::string& option, const std::string& text, std::int64_t low, std::int64_t high) {
  return parse_integer(option, text, low, high);
}

int parse_int(const std::string& option, const std::string& text, int high) {
  return static_cast<int>(parse_whole_number(option, text, 1, high));
}

std::uint64_t parse_seed(const std::string& option, const std::string& text) {
  return parse_integer<std::uint64_t>(option, text, 0, std::numeric_limits<std::uint64_t>::max());
}

std::array<int, 2> parse_pair(const std::string& option, const std::string& text, std::int64_t low, std::int64_t high,
                              const std::string& allowed) {
  const std::size_t comma = std::min(text.find(','), text.size()), behind = std::min(comma + 1, text.size());
  const auto number = [&](const std::string& part) {
    try {
      return static_cast<int>(parse_whole_number(option, part, low, high));
    } catch (const UsageError&) {  // which tells of one of the two
      throw UsageError(option + " is '" + text + "'; allowed: " + allowed);
    }
  };
  return {number(text.substr(0, comma)), number(text.substr(behind))};
}

Window parse_window(const std::string& option, const std::string& text) {
  const auto [left, right] =
      parse_pair(option, text, Window::open, largest_window, "left,right, each -1 for no bound, or 0 to 2^30-1");
  return {left, right};
}

Sequences parse_lengths(const std::string& option, const std::string& text) {
  Sequences sequences{{0}, {0}};
  const auto append = [&](std::vector<int>& offsets, const std::string& part) {
    try {
      offsets.push_back(static_cast<int>(parse_whole_number(option, part, 0, largest_size - offsets.back()) + offsets.back()));
    } catch (const UsageError&) {  // which tells of one of them
      throw UsageError(
          option + " is '" + text +
          "'; allowed: lengths such as 100,0,7:20, each of 0 or more queries and keys, or queries:keys, at most 2^30 "
          "together");
    }
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string both = text.substr(at, comma - at);
    const std::size_t colon = std::min(both.find(':'), both.size());
    append(sequences.queries, both.substr(0, colon));
    append(sequences.keys, colon == both.size() ? both : both.substr(colon + 1));
    at = comma + 1;
  }
  return sequences;
}

float parse_finite(const std::string& option, const std::string& text) {
  char* stop = nullptr;
  const float value = std::strtof(text.c_str(), &stop);
  const bool starts_with_space = text.empty() || std::isspace(static_cast<unsigned char>(text.front()));
  if (!starts_with_space && stop == text.c_str() + text.size() && std::isfinite(value)) return value;
  throw UsageError(option + " is '" + text + "'; allowed: finite fp32 numbers");
}

int guarded(const std::string& program, const std::function<int()>& work) {
  const auto complain = [&](const std::string& message, int code) {
    std::cerr << program << ": " << one_line(message) << std::endl;
    return code;
  };
  try {
    return work();
  } catch (const UsageError& error) {
    return complain(error.what(), 2);
  } catch (const DeviceError& error) {
    return complain(error.what(), 3);
  } catch (const std::bad_alloc&) {
    return complain("not enough main memory for this problem", 3);
  } catch (const KernelError& error) {
    return complain(std::string(error.what()) + " [" + error.rule + "]", 1);
  } catch (const std::exception& error) {
    return complain(std::string("internal error: ") + error.what(), 1);
  }
}

CLI::Option* add_text(CLI::App& app, const char* name, const char* type, const char* text,
                      const std::function<void(const std::string&)>& use) {
  return app.add_option_function<std::string>(name, use, text)->type_name(type);
}

CLI::Option* add_name(CLI::App& app, const char* name, const char* type, const char* text, std::string& target) {
  return add_text(app, name, type, text, [name, &target](const std::string& given) {
    if (given.empty()) throw UsageError(std::string(name) + " is ''; allowed: a name");
    target = given;
  });
}

std::string parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    check_environment();
    return "";
  } catch (const CLI::CallForHelp&) {
    return help_of(app) + environment_help();
  } catch (const CLI::CallForVersion& version) {
    return version.what() + std::string("\n");
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> unknown = app.remaining();
    const std::string first = unknown.empty() ? "?" : unknown.front();
    throw UsageError("unknown argument '" + first + "'; --help lists the options");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; --help lists the options");
  }
}

}  // namespace flash
