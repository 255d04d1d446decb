// Explains a wrong kernel by what the simulator sees: what its threads do to each other, and which results are off.
#pragma once

#include "common/harness/report.hpp"
#include "common/harness/runner.hpp"

#include <optional>
#include <string>

namespace flash {

/// Runs the pass again on the simulator and looks at every access to memory. If the run's check failed, also in other orders of the
/// threads, whose results are compared with `got`. Absent where nothing can be known: on a GPU and under a sanitizer.
std::optional<Diagnosis> diagnose(Runner&, const Inputs&, const Sample&, const Results<float>& got, const RunRecord&);

/// After watched launches: which elements of the outputs, and of the workspaces that were read, no thread has written. A line each.
std::vector<std::string> never_written(const Attention&);

/// After watched launches: the bank conflicts of plain arrays, "" if there are none.
std::string array_conflicts();

}  // namespace flash
