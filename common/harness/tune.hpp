// --tune: all compiled tile sizes of a variant on one problem.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/harness/report.hpp"

namespace flash {

/// Runs every choice of the variant's tile sizes for the pass: checked unless `options.check` is off, then timed on a GPU (a wrong
/// one is not) or counted by the simulator.
TuneRecord tune(Device&, const Heading& run, const Inputs&, const Options&);

}  // namespace flash
