#include "common/binding/stream.hpp"

#include "common/machine/gpu/check.cuh"
#include "common/machine/gpu/launch.cuh"

#include <algorithm>

namespace flash {
namespace {

/// What the arguments of a kernel, 4 KB, have room for.
struct Numbers {
  static constexpr int most = 960;
  int at[most];
};

__global__ void write_kernel(int* to, Numbers numbers, int count) {
  const int n = static_cast<int>(threadIdx.x);
  if (n < count) to[n] = numbers.at[n];
}

}  // namespace

int current_gpu() {
  int gpu = 0;
  check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
  return gpu;
}

void launch_on(void* stream) { launch_stream() = static_cast<cudaStream_t>(stream); }

void write_on_gpu(int* to, std::span<const int> from) {
  while (!from.empty()) {
    const std::size_t count = std::min<std::size_t>(from.size(), Numbers::most);
    Numbers some{};
    std::copy_n(from.begin(), count, some.at);
    launch("write", {.grid = dim3(1), .block = dim3(Numbers::most)}, write_kernel, to, some, static_cast<int>(count));
    from = from.subspan(count), to += count;
  }
}

}  // namespace flash
