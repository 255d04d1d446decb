// What a launch may ask of the target GPU. CUDA C++ Programming Guide, "Compute Capabilities", technical specifications.
#pragma once

#include "common/simt/launch.hpp"

namespace flash::machine {

/// The most shared memory that a block can have, in bytes.
constexpr std::size_t shared_bytes_limit(int target_sm) {
  if (target_sm >= 90) return 227 * 1024;
  if (target_sm >= 80) return 163 * 1024;
  return 64 * 1024;
}

/// Throws DeviceError, naming kernel and shape, if the target cannot hold the launch.
void check_limits(const KernelCall&, int target_sm);

}  // namespace flash::machine
