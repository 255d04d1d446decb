#include "common/machine/engine/limits.hpp"

#include "common/machine/engine/messages.hpp"
#include "common/machine/error.hpp"
#include "common/machine/rules.hpp"

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
  const auto message = [&](const std::string& limit) {
    return "kernel " + std::string(kernel.name) + ", grid " + words(shape.grid) + ", block " + words(shape.block) + ", " +
           std::to_string(shape.shared_bytes) + " bytes of dynamic shared memory: " + limit + ", launched at " +
           words(shape.site);
  };
  const dim3 grid_limit(2147483647u, 65535u, 65535u), block_limit(1024u, 1024u, 64u);
  if (!within(shape.grid, grid_limit))
    throw KernelError(name_of(RuleId::launch_limits), message("CUDA allows a grid of 1 to " + words(grid_limit)));
  if (!within(shape.block, block_limit) || std::uint64_t{shape.block.x} * shape.block.y * shape.block.z > 1024) {
    throw KernelError(name_of(RuleId::launch_limits),
                      message("CUDA allows a block of 1 to " + words(block_limit) + ", 1024 threads in all"));
  }
  if (const std::size_t most = shared_bytes_limit(target_sm); shape.shared_bytes > most) {
    throw KernelError(name_of(RuleId::launch_limits),
                      message("a GPU of sm_" + std::to_string(target_sm) + " allows " + std::to_string(most) + " bytes"));
  }
}

void check_static_shared(const KernelCall& kernel, const std::vector<SharedVariable>& variables, int target_sm) {
  constexpr std::size_t most_static = 48 * 1024;
  std::size_t sum = 0;
  std::string list;
  for (const SharedVariable& variable : variables) {
    sum += variable.bytes;
    list += (list.empty() ? "" : ", ") + variable.name + " " + std::to_string(variable.bytes);
  }
  const std::string what =
      "kernel " + std::string(kernel.name) + ": " + std::to_string(sum) + " bytes of static shared memory (" + list + ")";
  if (sum > most_static) {
    throw KernelError(name_of(RuleId::launch_limits), what + ": CUDA allows a kernel " + std::to_string(most_static) +
                                                          ", and more only as dynamic shared memory");
  }
  if (const std::size_t most = shared_bytes_limit(target_sm), dynamic = kernel.shape.shared_bytes; sum + dynamic > most) {
    throw KernelError(name_of(RuleId::launch_limits), what + " and " + std::to_string(dynamic) + " of dynamic: a GPU of sm_" +
                                                          std::to_string(target_sm) + " allows " + std::to_string(most) +
                                                          " together");
  }
}

}  // namespace flash::machine
