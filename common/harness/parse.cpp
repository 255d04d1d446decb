#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace flash {
namespace {

template <class Integer>
Integer parse_integer(const std::string& option, const std::string& text, Integer low, const char* high_in_words) {
  Integer value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && stop == end && value >= low) return value;
  throw UsageError(option + " is '" + text + "'; allowed: whole numbers from " + std::to_string(low) + " to " + high_in_words);
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

std::int64_t parse_whole_number(const std::string& option, const std::string& text, std::int64_t low) {
  return parse_integer<std::int64_t>(option, text, low, "2^63-1");
}

std::uint64_t parse_seed(const std::string& option, const std::string& text) {
  return parse_integer<std::uint64_t>(option, text, 0, "2^64-1");
}

float parse_finite(const std::string& option, const std::string& text) {
  char* stop = nullptr;
  const float value = std::strtof(text.c_str(), &stop);
  const bool starts_with_space = text.empty() || std::isspace(static_cast<unsigned char>(text.front()));
  if (!starts_with_space && stop == text.c_str() + text.size() && std::isfinite(value)) return value;
  throw UsageError(option + " is '" + text + "'; allowed: finite fp32 numbers");
}

std::string parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return "";
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::CallForVersion& version) {
    return version.what() + std::string("\n");
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> unknown = app.remaining();
    throw UsageError("unknown argument '" + (unknown.empty() ? std::string("?") : unknown.front()) +
                     "'; --help lists the options");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; --help lists the options");
  }
}

}  // namespace flash
