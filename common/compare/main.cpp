// compare: all stages on one problem or on those of a sweep, one table for each problem and pass.
#include "common/base/error.hpp"
#include "common/compare/rows_file.hpp"
#include "common/compare/run.hpp"
#include "common/compare/table.hpp"
#include "common/harness/console.hpp"
#include "common/harness/parse.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace flash {
namespace {

/// 0 if all is well; 1 after a failure; 2 or 3 if nothing ran at all, as the stage programs themselves ended.
int exit_code(const std::vector<Row>& rows) {
  const auto any = [&](const char* verdict) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.verdict() == verdict; });
  };
  if (any_failure(rows)) return 1;
  if (any(verdict::ok)) return 0;
  return any(verdict::no_room) ? 3 : 2;
}

int compare(int argc, char** argv) {
  CompareOptions options;
  if (const std::string answer = parse_compare_options(argc, argv, options); !answer.empty()) {
    print(answer);
    return 0;
  }

  const bool runs = options.rows.empty();
  std::vector<Row> rows;
  for (const std::string& file : options.rows) {
    const std::vector<Row> saved = read_rows(file);
    rows.insert(rows.end(), saved.begin(), saved.end());
  }
  if (runs) rows = run_all(options, FLASH_SOURCE_DIR);
  if (rows.empty()) throw UsageError("--rows: there is no row in the given files");

  const bool failed = any_failure(rows);
  const std::size_t terminal = columns_of(STDOUT_FILENO);
  const std::size_t width = options.wide ? std::string::npos : terminal > 0 ? terminal : page_columns;
  std::string text;
  if (options.json) {
    for (const Row& row : rows) text += json_line(row);
  } else {
    text = comparison_tables(rows, width) + (failed ? "\nFAILED: see the verdicts above\n" : "");
  }
  print(text);
  return runs ? exit_code(rows) : failed ? 1 : 0;
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
