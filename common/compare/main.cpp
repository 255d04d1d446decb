// compare: all stages on one problem, one table per pass.
#include "common/compare/provenance.hpp"
#include "common/compare/run.hpp"
#include "common/compare/table.hpp"
#include "common/device/error.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/pending_file.hpp"

#include <algorithm>
#include <iostream>

namespace flash {
namespace {

std::string json_text(const std::vector<Row>& rows) {
  Json all = Json::array();
  for (const Row& row : rows) all.push_back(row.json());
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// 0 if all is well; 1 after a failure; 2 or 3 if nothing ran at all, as the stage programs themselves ended.
int exit_code(const std::vector<Row>& rows) {
  const auto any = [&](auto&& is) { return std::any_of(rows.begin(), rows.end(), is); };
  if (any([](const Row& row) { return is_failure(row.verdict); })) return 1;
  if (any([](const Row& row) { return row.verdict == Verdict::ok; })) return 0;
  return any([](const Row& row) { return row.verdict == Verdict::no_room; }) ? 3 : 2;
}

/// Is there a variant with a pass and the dtype that are asked for?
bool anything_to_run(const CompareOptions& options, const std::vector<Stage>& stages) {
  for (const Stage& stage : stages) {
    for (const ListedVariant& variant : stage.variants) {
      for (const Pass pass : options.passes) {
        if (variant.has(pass) && variant.takes(*options.problem.dtype)) return true;
      }
    }
  }
  return false;
}

/// Stages of which no variant takes the dtype: "01_naive, 02_safe_softmax".
std::string left_out(const std::vector<Stage>& stages, Dtype dtype) {
  std::string names;
  for (const Stage& stage : stages) {
    const auto takes = [&](const ListedVariant& variant) { return variant.takes(dtype); };
    if (!stage.variants.empty() && std::none_of(stage.variants.begin(), stage.variants.end(), takes))
      names += (names.empty() ? "" : ", ") + stage.name;
  }
  return names;
}

/// Drops all variants but those of --variant. UsageError if one of them is nowhere.
void keep_variants(std::vector<Stage>& stages, const std::vector<std::string>& wanted) {
  if (wanted.empty()) return;
  std::string names;
  std::vector<std::string> missing = wanted;
  for (Stage& stage : stages) {
    for (const ListedVariant& variant : stage.variants) {
      names += (names.empty() ? "" : ", ") + variant.name;
      std::erase(missing, variant.name);
    }
    std::erase_if(stage.variants, [&](const ListedVariant& variant) {
      return std::find(wanted.begin(), wanted.end(), variant.name) == wanted.end();
    });
  }
  if (!missing.empty()) throw UsageError("--variant has '" + missing.front() + "'; allowed: " + names);
}

/// Everything that is known before the first run. UsageError or DeviceError if there is nothing to run.
struct Plan {
  std::vector<Stage> stages;
  Backend backend;
  std::vector<RequestedSizes> sizes;
  std::vector<Problem> problems;  ///< one for each of the sizes
};

Plan make_plan(const CompareOptions& options, const char* argv0) {
  Plan plan;
  const std::filesystem::path folder = options.bin.empty() ? own_folder(argv0) : std::filesystem::path(options.bin);
  for (const auto& program : find_stages(folder, options.only)) plan.stages.push_back(ask_stage(program));
  keep_variants(plan.stages, options.variants);
  if (!anything_to_run(options, plan.stages)) {
    throw UsageError("nothing to run: no stage here has this pass for --dtype " +
                     std::string(to_string(*options.problem.dtype)));
  }
  plan.backend = choose_backend(options, plan.stages.front());
  plan.sizes = sizes_to_run(options, plan.backend);
  for (const RequestedSizes& sizes : plan.sizes) plan.problems.push_back(make_problem(options.problem, sizes));
  return plan;
}

/// Runs the plan, with progress on stderr. `tables` gets one table for each problem and pass.
std::vector<Row> run_plan(const CompareOptions& options, const Plan& plan, std::string& tables) {
  std::cerr << "comparing " << plan.stages.size() << (plan.stages.size() == 1 ? " stage" : " stages") << " on the "
            << (plan.backend == Backend::gpu ? "GPU" : "CPU simulator") << ", each checked against double precision"
            << std::endl;
  const Dtype dtype = *options.problem.dtype;
  if (const std::string names = left_out(plan.stages, dtype); !names.empty()) {
    std::cerr << "left out, since they do not take " << to_string(dtype) << ": " << names << std::endl;
  }
  const Json when = commit_and_date(FLASH_SOURCE_DIR);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < plan.problems.size(); ++i) {
    if (plan.problems.size() > 1) std::cerr << describe(plan.problems[i]) << std::endl;
    for (const Pass pass : options.passes) {
      std::vector<Row> of_pass = run_pass(options, plan.stages, plan.sizes[i], pass, plan.backend, std::cerr);
      if (of_pass.empty()) continue;
      tables += "\n" + comparison_table(of_pass, plan.problems[i], pass, plan.backend);
      for (Row& row : of_pass) {
        row.provenance = when;
        row.provenance["sources"] = blob_ids(FLASH_SOURCE_DIR, row.kernel);
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

int compare(int argc, char** argv) {
  const CompareCommand command = parse_compare_options(argc, argv);
  if (!command.answer.empty()) {
    std::cout << command.answer;
    return 0;
  }
  const CompareOptions& options = command.options;
  stop_child_on_signals();
  if (!options.save.empty()) {
    const SignalsHeld held;     // or its file would stay
    PendingFile{options.save};  // whether it can be written is known before anything runs
  }
  const Plan plan = make_plan(options, argv[0]);
  std::string tables;
  const std::vector<Row> rows = run_plan(options, plan, tables);
  if (!options.save.empty()) {
    const SignalsHeld held;
    PendingFile file(options.save);
    file.write(json_text(rows));
    file.commit();
  }

  const int code = exit_code(rows);
  if (code == 1) tables += "\nFAILED: see the verdicts above\n";
  std::cout << (options.json ? json_text(rows) : options.csv ? csv_text(rows) : tables) << std::flush;
  return std::cout ? code : 2;
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
