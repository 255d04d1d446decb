// Explains a wrong result by its numbers alone, so on a GPU, too: by what exp cannot hold, by the other problem that it solves, or by which of its
// rows are right. Explanations by the simulator are in diagnosis.hpp.
#pragma once

#include "common/attention/registry.hpp"
#include "common/reference/reference.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

/// The largest score of the row where O or L is most wrong, if that score explains the error; it may be infinite or NaN.
std::optional<float> explaining_score(const Variant&, const FullProblem&, const Inputs&, const CheckReport&);

/// "" or that of the rows that were compared exactly those are wrong that see no key.
std::string only_empty_rows_wrong(const FullProblem&, const CheckReport&);

/// "" or which other problem O and L solve: the one without the scale, or whose queries see a key more, say.
std::string solved_instead(const FullProblem&, const Inputs&, const Results<float>& got, const Sample&);

/// What the wrong rows of O and L have in common, and the right ones have not; none for a sample, or if nothing is.
std::vector<std::string> row_hints(const FullProblem&, const Inputs&, const Results<float>& got, const CheckReport&,
                                   const Sample&);

}  // namespace flash
