// The mistake that a causal problem with more queries than keys shows: rows that see no key.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/attention/problem.hpp"

#include <string>

namespace flash {

/// For results that failed their check: a sentence if exactly the rows without a visible key are wrong, else "". Looks only at problems
/// that are checked whole.
std::string only_empty_rows_wrong(const Problem&, const Inputs&, Pass, const Results<float>& got);

}  // namespace flash
