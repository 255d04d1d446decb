// compare: all stages on one problem or on those of a sweep, one table for each problem and pass.
#include "common/compare/plan.hpp"
#include "common/compare/table.hpp"
#include "common/harness/console.hpp"
#include "common/harness/parse.hpp"

int main(int argc, char** argv) {
  return flash::guarded("compare", [&] {
    flash::CompareOptions options;
    if (const std::string answer = flash::parse_compare_options(argc, argv, options); !answer.empty()) {
      flash::print(answer);
      return 0;
    }
    const std::vector<flash::Row> rows = flash::run_all(options, FLASH_SOURCE_DIR);
    const int code = flash::exit_code(rows);
    flash::print(flash::comparison_tables(rows, options.wide) + (code == 1 ? "\nFAILED: see the verdicts above\n" : ""));
    return code;
  });
}
