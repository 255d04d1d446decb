// --html: hands saved rows to report.py, which writes the report for a browser.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flash {

/// Shell words that start this program again as it was started: "build/bin/compare --sweep seq=64..256".
std::string command_line(int argc, const char* const* argv);

/// Before anything runs: UsageError if the file cannot be written or is something else than a report, or if python3 (the environment variable PYTHON names another) or
/// report.py is missing. `sources`: the project's folder.
void require_report(const std::string& html, const std::filesystem::path& sources);

/// Writes the report. `what`: report.py's arguments, the files of rows, and "--command" with what made them where they do not tell it
/// themselves. UsageError with what report.py said if it fails.
void write_report(const std::string& html, const std::filesystem::path& sources, const std::vector<std::string>& what);

}  // namespace flash
