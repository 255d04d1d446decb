// Explains a wrong kernel by what the simulator sees of it, and by its results alone (diagnosis_by_numbers.cpp).
#pragma once

#include "common/harness/report.hpp"
#include "common/harness/runner.hpp"

#include <string>

namespace flash {

/// Runs the pass again on the simulator and looks at every access to memory, for RunRecord::diagnosis. If the check failed for no reason that is known
/// yet, also in other orders of the threads, whose results are compared with `got`. Does nothing on a GPU and under a sanitizer.
void diagnose(Runner&, const Inputs&, const Sample&, const Results<float>& got, RunRecord&);

/// After watched launches: which elements of the outputs, and of the workspaces that were read, no thread has written. A line each.
std::vector<std::string> never_written(const Attention&);

/// "" or that the largest score of the row where O or L is most wrong explains the error.
std::string score_out_of_range(const Variant&, const FullProblem&, const Inputs&, const CheckReport&);

/// "" or that of the rows that were compared exactly those are wrong that see no key.
std::string only_empty_rows_wrong(const FullProblem&, const CheckReport&);

/// "" or which other problem O and L solve: the one without the scale, or whose queries see a key more, say.
std::string solved_instead(const FullProblem&, const Inputs&, const Results<float>& got, const CheckReport&, const Sample&);

}  // namespace flash
