// Runs stage programs and collects rows.
#pragma once

#include "common/compare/history.hpp"
#include "common/compare/plan.hpp"
#include "common/compare/progress.hpp"
#include "common/compare/save.hpp"

#include <ostream>

namespace flash {

/// Runs the plan but for the rows that `kept` has, and returns all. Each row goes to `save` as soon as it is there. Says on `log` how
/// many runs were skipped and why.
KeptRows run_plan(const CompareOptions&, const Plan&, KeptRows kept, const SaveFile& save, Progress&, std::ostream& log);

}  // namespace flash
