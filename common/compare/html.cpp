#include "common/compare/html.hpp"

#include "common/base/error.hpp"
#include "common/base/process.hpp"
#include "common/compare/stages.hpp"
#include "common/harness/pending_file.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// How a page of report.py begins.
constexpr std::string_view report_start = "<!DOCTYPE html>\n<!-- a report of flash-steps -->\n";

/// As a shell reads it as one word.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("-_./=,:+", c) != nullptr; };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

fs::path script_in(const fs::path& sources) { return sources / "common" / "compare" / "report.py"; }

}  // namespace

std::string command_line(int argc, const char* const* argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) line += (i == 0 ? "" : " ") + shell_word(argv[i]);
  return line;
}

void require_report(const std::string& html, const fs::path& sources) {
  {
    const SignalsHeld held;  // or the pending file would stay
    if (PendingFile(html).replaces_other_than(report_start)) {
      throw UsageError(html + " exists and is no report of compare, so it is left as it is; allowed: a new name, or a report");
    }
  }
  std::error_code error;
  const fs::path script = script_in(sources);
  if (!fs::is_regular_file(script, error)) {
    throw UsageError("--html needs " + script.string() + ", which does not exist; keep the project where it was built");
  }
  if (const std::string why = complaint(run_process({python(), "--version"}, std::chrono::seconds(60))); !why.empty()) {
    throw UsageError("--html needs Python, and '" + python() + "' cannot be started (" + why + "); PYTHON may name another");
  }
}

void write_report(const std::string& html, const fs::path& sources, const std::vector<std::string>& what) {
  std::vector<std::string> arguments{python(), script_in(sources).string(), "--out", html};
  arguments.insert(arguments.end(), what.begin(), what.end());
  const std::string why = complaint(run_process(arguments, std::chrono::minutes(5)));
  if (!why.empty()) throw UsageError("--html " + html + " could not be made: " + why);
}

}  // namespace flash
