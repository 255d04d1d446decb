// Chooses the device and the tile sizes that a command line means, and refuses a problem that has no room there.
#pragma once

#include "common/harness/command_line.hpp"
#include "common/machine/device.hpp"

#include <memory>
#include <optional>
#include <string>

namespace flash {

/// The device of --device. auto takes a GPU if one works and the stage was built for it, else the CPU. DeviceError with the
/// reason if a GPU is demanded and there is none; UsageError if --bench would have to time the CPU.
std::unique_ptr<Device> choose_device(const Request&);

/// DeviceError if inputs, outputs and workspaces cannot fit in the device's memory or in main memory. With --load the inputs are
/// in main memory already.
void check_memory(const DeviceInfo&, const Variant&, const FullProblem&, Pass, bool loaded);

/// "64,32", as --tiles takes it.
std::string to_string(const Tiles&);

/// The tile sizes that a run of the pass uses: `wanted`, else the default; absent if there is nothing to choose. UsageError if `wanted` is none of
/// the choices; DeviceError if none fits the device.
std::optional<Tiles> choose_tiles(const Variant&, const FullProblem&, Pass, const DeviceLimits&, std::optional<Tiles> wanted);

}  // namespace flash
