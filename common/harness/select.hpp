// Chooses the device and the variant that a command line means, and refuses a problem that cannot run there.
#pragma once

#include "common/harness/options.hpp"
#include "common/machine/device.hpp"

#include <memory>
#include <string>

namespace flash {

/// The device of --device. auto takes a GPU if one works and the stage was built for it, else the CPU. DeviceError with the
/// reason if a GPU is demanded and there is none; UsageError if --bench would have to time the CPU.
std::unique_ptr<Device> choose_device(const Options&);

/// The variant of --variant, or the last one that has the pass and the dtype, as built for the CPU: every kernel is. UsageError if there is none,
/// or none of that name.
const Variant& choose_variant(const StageInfo&, const Options&);

/// UsageError if the variant cannot take the problem (refusal()); DeviceError if it could, but not on this device.
void check_variant(const Variant&, const FullProblem&, const DeviceLimits&);

/// DeviceError if inputs, outputs and workspaces cannot fit in the device's memory or in main memory. With --load the inputs are
/// in main memory already.
void check_memory(const DeviceInfo&, const Variant&, const FullProblem&, Pass, bool loaded);

/// A warning about the simulator's time, "" if it takes seconds.
std::string simulation_note(const FullProblem&, Pass);

}  // namespace flash
