// compare: all stages on one problem or on those of a sweep, one table for each problem and pass.
#include "common/base/error.hpp"
#include "common/compare/html.hpp"
#include "common/compare/run.hpp"
#include "common/compare/table.hpp"
#include "common/harness/console.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/pending_file.hpp"

#include <unistd.h>

#include <algorithm>
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

/// Runs all, with progress on stderr.
std::vector<Row> run(const CompareOptions& options, const char* argv0, const std::string& command) {
  SaveFile save(options.save, options.resume ? command : command + " --resume");
  const std::vector<Row> earlier = save.start(options.resume);
  const Plan plan =
      make_plan(options, options.bin.empty() ? own_folder(argv0) : std::filesystem::path(options.bin), FLASH_SOURCE_DIR);
  if (!options.force) save.check_replaced(plan, options.tune);
  const bool sweep = plan.cases.size() > 1;
  const std::size_t stages = plan.stages.size() - (options.peers ? 1 : 0);
  std::cerr << "comparing ";
  if (stages > 0) std::cerr << stages << (stages == 1 ? " stage" : " stages");
  if (options.peers) std::cerr << (stages > 0 ? " and " : "") << "torch " << plan.stages.back().about.value("torch", "");
  std::cerr << " on the " << (plan.backend == Backend::gpu ? "GPU" : "CPU simulator");
  if (stages > 0) std::cerr << (options.peers ? ", each stage" : ", each") << " checked against double precision";
  if (sweep) std::cerr << ": " << plan.runs.size() << " runs over " << plan.cases.size() << " problems";
  std::cerr << std::endl << left_out(plan);

  KeptRows kept = rows_that_hold(earlier, plan, options);
  if (options.resume) {
    std::cerr << kept.done().size() << " of " << plan.runs.size() << " runs are saved and still hold" << std::endl;
  }
  const auto look = !sweep ? Progress::Look::plain : terminal_columns() > 0 ? Progress::Look::live : Progress::Look::lines;
  Progress progress(std::cerr, look, plan.runs.size() * options.rounds, terminal_columns);
  kept = run_plan(options, plan, std::move(kept), save, progress, std::cerr);
  save.finish(kept, std::cerr);
  return kept.done();
}

int compare(int argc, char** argv) {
  const CompareCommand command = parse_compare_options(argc, argv);
  if (!command.answer.empty()) {
    print(command.answer);
    return 0;
  }
  const CompareOptions& options = command.options;
  const std::string again = command_line(argc, argv);
  stop_child_on_signals();
  if (!options.html.empty()) require_report(options.html, FLASH_SOURCE_DIR);

  std::vector<Row> rows;
  for (const std::string& file : options.rows) {
    const std::vector<Row> saved = read_rows(file);
    rows.insert(rows.end(), saved.begin(), saved.end());
  }
  if (!options.rows.empty() && rows.empty()) throw UsageError("--rows: there is no row in the given files");
  if (options.rows.empty()) rows = run(options, argv[0], again);

  const bool failed = any_failure(rows);
  const std::size_t terminal = columns_of(STDOUT_FILENO);
  const std::size_t width = options.wide ? std::string::npos : terminal > 0 ? terminal : page_columns;
  const std::string tables = comparison_tables(rows, width) + (failed ? "\nFAILED: see the verdicts above\n" : "");
  print(options.json ? json_text(rows) : options.csv ? csv_text(rows) : tables);
  if (!options.html.empty()) {
    if (options.rows.empty()) {
      const SignalsHeld held;  // the file of rows must not stay; this takes seconds
      PendingFile file(options.html);
      file.write(json_text(rows));
      write_report(options.html, FLASH_SOURCE_DIR, {file.temporary(), "--command", again});
    } else {
      write_report(options.html, FLASH_SOURCE_DIR, options.rows);
    }
    std::cerr << one_line("wrote " + options.html) << std::endl;
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
