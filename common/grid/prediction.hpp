// Predictions held to the simulator's exact counts.
#pragma once

#include "common/attention/variant.hpp"

namespace flash::grid {

/// Counts one run of the pass alone on the simulator, with these tiles or the default, and reports to doctest each number that differs from Variant::predict: the bytes of
/// each tensor, and sectors, barriers and warp operations where they have a formula. A variant that the stage's predicted.hpp does not know
/// is passed over, and named.
void check_prediction(const Variant&, const FullProblem&, Pass, std::optional<Tiles> = {});

}  // namespace flash::grid
