// One hazard of zoo_async.hpp, or its correct twin, on a GPU: what compute-sanitizer runs (zoo_sanitizer.sh). A mistake may hang.
//
//   zoo_gpu                   the names of all cases, each with the kernels there are: wrong, right
//   zoo_gpu NAME wrong|right  runs one and prints a checksum of what it leaves
// Exit codes: 1 the GPU reported an error, 2 bad usage, 3 no GPU.
#include "common/machine/device.hpp"
#include "common/machine/error.hpp"
#include "common/machine/test/zoo_async.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

namespace {

int run(void (*launch_case)(void*)) {
  std::string why_not;
  const std::unique_ptr<flash::Device> gpu = flash::open_gpu(why_not);
  if (gpu == nullptr) {
    std::fprintf(stderr, "zoo_gpu: %s\n", why_not.c_str());
    return 3;
  }
  const auto memory = std::make_unique<flash::AsyncMemory>();
  std::ranges::fill(memory->out, 0u);
  for (unsigned i = 0; i < 4096; ++i) memory->in[i] = 0x3C003C00u + i % 512 * 0x10001u;  // fp16 from 1 to 1.5
  const flash::Buffer buffer(*gpu, sizeof *memory);
  gpu->upload(buffer.data(), memory.get(), sizeof *memory);
  gpu->run([&] { launch_case(buffer.data()); });
  gpu->download(memory.get(), buffer.data(), sizeof *memory);
  unsigned sum = 0;
  for (const unsigned word : memory->out) sum = sum * 31 + word;
  std::printf("%08x\n", sum);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "", which = argc > 2 ? argv[2] : "";
  try {
    for (const flash::AsyncCase& each : flash::gpu_async_cases()) {
      if (argc == 1) std::printf("%s%s right\n", each.name, each.wrong == nullptr ? "" : " wrong");
      if (argc == 3 && name == each.name && which == "right") return run(each.right);
      if (argc == 3 && name == each.name && which == "wrong" && each.wrong != nullptr) return run(each.wrong);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "zoo_gpu: %s\n", error.what());
    return 1;
  }
  if (argc == 1) return 0;
  std::fprintf(stderr, "zoo_gpu: no such case: '%s' '%s'; allowed: NAME wrong|right, names are those that zoo_gpu lists\n",
               name.c_str(), which.c_str());
  return 2;
}
