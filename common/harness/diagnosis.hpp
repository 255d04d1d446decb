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

/// Tensors of which the warps touch at least four times as many sectors as the elements fill. Passed over are the bias, rows that are short or begin
/// anywhere, and what is predicted to be so.
std::vector<std::string> waste(const Attention&, const Prediction&, const Counters&);

/// After watched launches: the bank conflicts of plain arrays, "" if there are none.
std::string array_conflicts();

/// The formula to look at, by the tensors that are wrong and those that are right; empty if all are right.
std::string suspect(const CheckReport&);

}  // namespace flash
