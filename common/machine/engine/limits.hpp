// What a launch may ask of the target GPU. CUDA C++ Programming Guide, "Compute Capabilities", technical specifications.
#pragma once

#include "common/machine/cpu/launch.hpp"
#include "common/machine/engine/shared_memory.hpp"
#include "common/machine/types.hpp"

#include <algorithm>

namespace flash::machine {

/// The most shared memory that a block can have, in bytes.
constexpr std::size_t shared_bytes_limit(int target_sm) {
  if (target_sm >= 90) return 227 * 1024;
  if (target_sm >= 80) return 163 * 1024;
  return 64 * 1024;
}

/// What launches on the target may ask for; its SMs are those of the T4, A100 and H100.
constexpr DeviceLimits limits_of(int target_sm) {
  // Of an SM's shared memory each block takes 1 KB for itself from sm_80 on.
  const std::size_t block = shared_bytes_limit(target_sm), system = target_sm >= 80 ? 1024 : 0;
  const int multiprocessors = target_sm >= 90 ? 132 : target_sm >= 80 ? 108 : 40;
  return {.sm = target_sm, .multiprocessors = multiprocessors, .shared_bytes = block, .shared_bytes_sm = block + system};
}

/// What the simulated GPU runs at once: programs make as many blocks as fill it. The guards of the simulator's stacks need two mappings for each
/// thread, and Linux gives a process 65,530.
constexpr unsigned simulated_sms = 4, most_threads = 16384;
constexpr unsigned blocks_per_sm(unsigned threads, std::size_t shared_bytes, int target_sm) {
  const auto by_shared = static_cast<unsigned>(limits_of(target_sm).shared_bytes_sm / (shared_bytes + 1024));
  return std::min({2048 / std::max(threads, 1u), by_shared, 32u});
}

/// Throws KernelError, naming kernel and shape, if the target cannot hold the launch: a variant refuses a GPU before it launches.
void check_limits(const KernelCall&, int target_sm);
/// The same once it is known which static __shared__ variables the kernel has.
void check_static_shared(const KernelCall&, const std::vector<SharedVariable>&, int target_sm);

}  // namespace flash::machine
