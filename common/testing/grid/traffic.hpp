// Predicted HBM bytes beside the simulator's exact count.
#pragma once

#include "common/attention/variant.hpp"

namespace flash::grid {

/// Counts one run of the pass alone on the simulator and reports to doctest each tensor whose bytes differ from Variant::predict, which
/// says nothing of a variant that it does not know.
void check_traffic(const Variant&, const Problem&, Pass);

}  // namespace flash::grid
