// Mistakes in arithmetic that a wrong result gives away: by the other problem that it solves, or by which of its rows are right.
#pragma once

#include "common/reference/reference.hpp"

#include <string>
#include <vector>

namespace flash {

/// "" or which other problem O and L solve: the one without the scale, or whose queries see a key more, say.
std::string solved_instead(const FullProblem&, const Inputs&, const Results<float>& got, const Sample&);

/// What the wrong rows of O and L have in common, and the right ones have not; none for a sample, or if nothing is.
std::vector<std::string> row_hints(const FullProblem&, const Inputs&, const Results<float>& got, const CheckReport&,
                                   const Sample&);

}  // namespace flash
