// Predictions held to the simulator's exact counts.
#pragma once

#include "common/attention/variant.hpp"
#include "common/machine/device.hpp"

namespace flash::grid {

/// Reports to doctest each count of one run of the pass alone, with these tiles or the default, that differs from Variant::predict: the bytes
/// of each tensor, and sectors, barriers and warp operations where they have a formula. A variant that the stage's predicted.hpp does not
/// know is passed over, and named once.
void check_counts(const Variant&, const FullProblem&, Pass, std::optional<Tiles>, const Counters&);

/// The same of a run on the simulator that nothing else needs.
void check_prediction(const Variant&, const FullProblem&, Pass, std::optional<Tiles> = {});

}  // namespace flash::grid
