// Predicted HBM bytes beside the simulator's exact count.
#pragma once

#include "common/attention/variant.hpp"

namespace flash::grid {

/// Counts one run of the pass alone on the simulator and reports to doctest each tensor whose bytes differ from Variant::predict. A variant that
/// the stage's predicted.hpp does not know is passed over, and named.
void check_traffic(const Variant&, const Problem&, Pass);

}  // namespace flash::grid
