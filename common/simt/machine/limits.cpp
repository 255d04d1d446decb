#include "common/simt/machine/limits.hpp"

#include "common/device/error.hpp"

#include <string>

namespace flash::machine {
namespace {

std::string words(const dim3& size) {
  return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
}

bool within(const dim3& size, const dim3& limit) {
  return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= limit.x && size.y <= limit.y && size.z <= limit.z;
}

}  // namespace

void check_limits(const KernelCall& kernel, int target_sm) {
  const LaunchShape& shape = kernel.shape;
  const auto refuse_unless = [&](bool holds, const std::string& limit) {
    if (holds) return;
    throw DeviceError("kernel " + std::string(kernel.name) + ", grid " + words(shape.grid) + ", block " + words(shape.block) +
                      ", " + std::to_string(shape.shared_bytes) + " bytes of dynamic shared memory: a GPU of sm_" +
                      std::to_string(target_sm) + " allows " + limit);
  };
  const dim3 grid_limit(2147483647u, 65535u, 65535u), block_limit(1024u, 1024u, 64u);
  refuse_unless(within(shape.grid, grid_limit), "a grid of 1 to " + words(grid_limit));
  refuse_unless(within(shape.block, block_limit) && std::uint64_t{shape.block.x} * shape.block.y * shape.block.z <= 1024,
                "a block of 1 to " + words(block_limit) + ", 1024 threads in all");
  refuse_unless(shape.shared_bytes <= shared_bytes_limit(target_sm), std::to_string(shared_bytes_limit(target_sm)) + " bytes");
}

}  // namespace flash::machine
