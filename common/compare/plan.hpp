// All runs, which are known before the first one starts.
#pragma once

#include "common/compare/options.hpp"
#include "common/compare/row.hpp"
#include "common/compare/stages.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace flash {

/// One variant, one pass, one problem; they belong to the plan.
struct Run {
  const Stage* stage = nullptr;
  const ListedVariant* variant = nullptr;
  Pass pass = Pass::forward;
  const Case* task = nullptr;

  std::string label() const { return stage->name + "/" + variant->name; }
  const FullProblem& problem() const { return task->problem; }
};

struct Plan {
  std::vector<Stage> stages;
  Backend backend = Backend::cpu;
  Json device;  ///< as a report names it; a row whose program reports none gets it
  std::vector<Case> cases;
  std::vector<Run> runs;                ///< problem by problem, then pass by pass, stages in order; then the same of the peers
  std::set<std::string> left_out;       ///< "08_tensor_cores, which does not take fp32"
  Json when;                            ///< commit and date of all rows
  std::map<std::string, Json> sources;  ///< of each variant's kernel file: path -> code_hash() of it and of what it includes

  Plan() = default;
  Plan(Plan&&) = default;  // but no copy: the runs point into it
};

/// Sizes that all stages together simulate in seconds; a GPU needs more work than that to be busy.
RequestedSizes compared_sizes(Backend);

/// Runs every variant that has the pass and takes the dtype. Where a stage has steps of the forward pass alone, those of the
/// backward pass are left out of the forward pass, which is not theirs. `sources`: the project's folder. UsageError if there is
/// nothing to run or a problem is not allowed; DeviceError if --device gpu finds none.
Plan make_plan(const CompareOptions&, const std::filesystem::path& sources);

/// Plans and runs everything, with progress on stderr. --save and --resume are part of it.
std::vector<Row> run_all(const CompareOptions&, const std::filesystem::path& sources);

}  // namespace flash
