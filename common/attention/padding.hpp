// Where d is no multiple of Variant::row_multiple: the kernels run on copies of the tensors, padded with zeros.
#pragma once

#include "common/attention/variants.hpp"

#include <vector>

namespace flash {

/// The problem as the kernels see it: a wider d, and each tensor by itself; the same problem if its rows fit.
FullProblem padded(const Variant&, FullProblem);

/// The copies that launch_pass() makes of the tensors of such a problem; none if its rows fit.
std::vector<WorkspaceSpec> padded_copies(const Variant&, const FullProblem&, Pass);

/// Launches the pass, of a backward one without its forward, and the copies before and after it.
void launch_pass(const Variant&, const Attention&, Pass);

/// Adds the traffic of these copies to that of the kernels, in elements.
void add_copies(Prediction&, const Variant&, const FullProblem&, Pass);

}  // namespace flash
