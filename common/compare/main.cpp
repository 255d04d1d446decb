// compare: all stages on one problem or on those of a sweep, one table for each problem and pass.
#include "common/base/error.hpp"
#include "common/compare/run.hpp"
#include "common/compare/save.hpp"
#include "common/compare/table.hpp"
#include "common/harness/console.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/pending_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iostream>

namespace flash {
namespace {

/// 0 if all is well; 1 after a failure; 2 or 3 if nothing ran at all, as the stage programs themselves ended.
int exit_code(const std::vector<Row>& rows) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.verdict == verdict; });
  };
  if (any_failure(rows)) return 1;
  if (any(Verdict::ok)) return 0;
  return any(Verdict::no_room) ? 3 : 2;
}

/// As a shell reads it as one word.
std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("-_./=,:+", c) != nullptr; };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Shell words that start this program again as it was started: "build/bin/compare --sweep seq=64..256".
std::string command_line(int argc, const char* const* argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) line += (i == 0 ? "" : " ") + shell_word(argv[i]);
  return line;
}

/// How a page of report.py begins.
constexpr std::string_view report_start = "<!DOCTYPE html>\n<!-- a report of flash-steps -->\n";

constexpr const char* report_program = FLASH_SOURCE_DIR "/common/compare/report.py";

/// Before anything runs: UsageError if the file cannot be written or is something else than a report, or if python3 (the environment
/// variable PYTHON names another) or report.py is missing.
void require_report(const std::string& html) {
  {
    const SignalsHeld held;  // or the pending file would stay
    if (PendingFile(html).replaces_other_than(report_start)) {
      throw UsageError(html + " exists and is no report of compare, so it is left as it is; allowed: a new name, or a report");
    }
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(report_program, error)) {
    throw UsageError(std::string("--html needs ") + report_program +
                     ", which does not exist; keep the project where it was built");
  }
  if (const std::string why = complaint(run_process({python(), "--version"}, std::chrono::seconds(60))); !why.empty()) {
    throw UsageError("--html needs Python, and '" + python() + "' cannot be started (" + why + "); PYTHON may name another");
  }
}

/// Writes the report of rows. `what`: the files that hold them, and what made them where they do not tell it themselves. UsageError
/// with what report.py said if it fails.
void write_report(const std::string& html, const std::vector<std::string>& what) {
  std::vector<std::string> arguments{python(), report_program, "--out", html};
  arguments.insert(arguments.end(), what.begin(), what.end());
  const std::string why = complaint(run_process(arguments, std::chrono::minutes(5)));
  if (!why.empty()) throw UsageError("--html " + html + " could not be made: " + why);
  std::cerr << one_line("wrote " + html) << std::endl;
}

int compare(int argc, char** argv) {
  CompareOptions options;
  if (const std::string answer = parse_compare_options(argc, argv, options); !answer.empty()) {
    print(answer);
    return 0;
  }
  const std::string again = command_line(argc, argv);
  stop_child_on_signals();
  let_large_writes_fail();
  if (!options.html.empty()) require_report(options.html);

  std::vector<Row> rows;
  for (const std::string& file : options.rows) {
    const std::vector<Row> saved = read_rows(file);
    rows.insert(rows.end(), saved.begin(), saved.end());
  }
  if (!options.rows.empty() && rows.empty()) throw UsageError("--rows: there is no row in the given files");
  if (options.rows.empty()) rows = run_all(options, FLASH_SOURCE_DIR, again);

  const bool failed = any_failure(rows);
  const std::size_t terminal = columns_of(STDOUT_FILENO);
  const std::size_t width = options.wide ? std::string::npos : terminal > 0 ? terminal : page_columns;
  const std::string tables = comparison_tables(rows, width) + (failed ? "\nFAILED: see the verdicts above\n" : "");
  print(options.json ? json_text(rows) : options.csv ? csv_text(rows) : tables);
  if (!options.html.empty() && options.rows.empty()) {
    const SignalsHeld held;  // the file of rows must not stay; this takes seconds
    PendingFile file(options.html);
    file.write(json_text(rows));
    write_report(options.html, {file.temporary(), "--command", again});
  } else if (!options.html.empty()) {
    write_report(options.html, options.rows);
  }
  if (options.rows.empty()) return exit_code(rows);
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  const auto complain = [](const std::exception& error, int code) {
    std::cerr << "compare: " << flash::one_line(error.what()) << std::endl;
    return code;
  };
  try {
    return flash::compare(argc, argv);
  } catch (const flash::UsageError& error) {
    return complain(error, 2);
  } catch (const flash::DeviceError& error) {
    return complain(error, 3);
  } catch (const std::exception& error) {
    return complain(error, 1);
  }
}
