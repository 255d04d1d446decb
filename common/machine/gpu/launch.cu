#include "common/machine/gpu/check.cuh"
#include "common/machine/gpu/launch.cuh"

#include <cstdint>

namespace flash {
inline namespace gpu {
namespace {

std::string words(const dim3& size) {
  return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
}

std::string words(const char* name, const LaunchShape& shape) {
  return std::string("kernel ") + name + ", grid " + words(shape.grid) + ", block " + words(shape.block) + ", " +
         std::to_string(shape.shared_bytes) + " bytes of dynamic shared memory";
}

void refuse_unless(bool holds, const char* name, const LaunchShape& shape, const std::string& limit) {
  if (!holds) throw KernelError("launch_limits", words(name, shape) + ": this GPU allows " + limit);
}

}  // namespace

cudaStream_t& launch_stream() {
  thread_local cudaStream_t stream = nullptr;
  return stream;
}

void prepare_launch(const char* name, const LaunchShape& shape, const void* kernel) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const int grid_x = attribute(cudaDevAttrMaxGridDimX, device), grid_y = attribute(cudaDevAttrMaxGridDimY, device),
            grid_z = attribute(cudaDevAttrMaxGridDimZ, device);
  cudaFuncAttributes function{};
  check_cuda(cudaFuncGetAttributes(&function, kernel), words(name, shape));

  const auto fits = [](unsigned value, int limit) { return value >= 1 && value <= static_cast<unsigned>(limit); };
  refuse_unless(fits(shape.grid.x, grid_x) && fits(shape.grid.y, grid_y) && fits(shape.grid.z, grid_z), name, shape,
                "a grid of 1 to " + std::to_string(grid_x) + " x " + std::to_string(grid_y) + " x " + std::to_string(grid_z));
  const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  refuse_unless(threads >= 1 && threads <= static_cast<std::uint64_t>(function.maxThreadsPerBlock), name, shape,
                "this kernel 1 to " + std::to_string(function.maxThreadsPerBlock) + " threads a block");
  const std::size_t shared_limit =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) - function.sharedSizeBytes;
  refuse_unless(shape.shared_bytes <= shared_limit, name, shape, std::to_string(shared_limit) + " bytes");
  if (shape.shared_bytes > static_cast<std::size_t>(function.maxDynamicSharedSizeBytes)) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
               words(name, shape));
  }
}

void check_launch(const char* name, const LaunchShape& shape) { check_cuda(cudaGetLastError(), words(name, shape)); }

}  // namespace gpu
}  // namespace flash
