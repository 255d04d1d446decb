// Runs stage programs and collects rows.
#pragma once

#include "common/compare/history.hpp"
#include "common/compare/plan.hpp"
#include "common/compare/progress.hpp"
#include "common/compare/save.hpp"

#include <functional>
#include <optional>
#include <ostream>
#include <vector>

namespace flash {

/// The part of a problem whose accesses the simulator counts in place of a GPU: one batch and one key/value head with its group of
/// query heads, since every group makes the same accesses on other data. Absent if it is too large to simulate in seconds, and on
/// a CPU, where the run itself is counted.
std::optional<Case> counted_part(const Run&, Backend);

/// Runs the plan but for the rows that `kept` has, and returns all. Each row goes to `save` as soon as it is there. Says on `log` how
/// many runs were skipped and why.
KeptRows run_plan(const CompareOptions&, const Plan&, KeptRows kept, const SaveFile& save, Progress&, std::ostream& log);

}  // namespace flash
