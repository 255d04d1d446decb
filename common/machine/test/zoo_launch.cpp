// Launches that no GPU takes, what kernels print.
#include "common/machine/test/zoo.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace flash {
namespace {

__global__ void nothing() {}

/// The message of a launch that is refused, "" if it is not.
std::string refusal(const LaunchShape& shape) {
  try {
    launch("zoo", shape, nothing);
  } catch (const KernelError& error) {
    return std::string(error.rule) + ": " + error.what();
  }
  return "";
}

/// Threads 2 and 3 print: a line in two parts, and two lines at once.
__global__ void prints(float value) {
  if (threadIdx.x < 2) return;
  printf("%d: ", threadIdx.x);
  printf("%.1f\nand\n", value);
}

/// Static shared memory, without a template and with one, which g++ keeps apart.
__global__ void static_tile(int* out) {
  __shared__ int small[1024], tile[12 * 1024];
  small[threadIdx.x] = tile[threadIdx.x] = 1;
  out[threadIdx.x] = small[threadIdx.x] + tile[threadIdx.x];
}
template <int Words>
__global__ void template_tile(int* out) {
  __shared__ int words[Words];
  words[threadIdx.x] = 1;
  out[threadIdx.x] = words[threadIdx.x];
}
}  // namespace

TEST_CASE("zoo: launches that the target cannot hold") {
  CHECK(refusal({dim3(3), dim3(1024), 227 * 1024}) == "");
  const std::string too_much = refusal({dim3(3, 2), dim3(32, 4), 227 * 1024 + 1});  // BUG launched
  CHECK_REPORT(too_much, "launch_limits: kernel zoo, grid 3x2x1, block 32x4x1, 232449 bytes of dynamic shared memory: ",
               "a GPU of sm_90 allows 232448 bytes, launched at ", BUG("launched"));
  set_options({.target_sm = 80});
  CHECK_REPORT(refusal({dim3(1), dim3(1), 200 * 1024}), "a GPU of sm_80 allows 166912 bytes");
  set_options({.target_sm = 75});
  CHECK_REPORT(refusal({dim3(1), dim3(1), 65 * 1024}), "a GPU of sm_75 allows 65536 bytes");
  set_options({});
  CHECK_REPORT(refusal({dim3(1), dim3(32, 33)}), "1024 threads in all");
  CHECK_REPORT(refusal({dim3(1), dim3(1, 1, 65)}), "a block of 1 to 1024x1024x64");
  CHECK_REPORT(refusal({dim3(1, 65536), dim3(1)}), "a grid of 1 to 2147483647x65535x65535");
  CHECK_REPORT(refusal({dim3(0), dim3(1)}), "grid 0x1x1");
}

#if defined(__ELF__)
TEST_CASE("zoo: more static shared memory than a kernel may have") {
  std::vector<int> out(4);
  const auto refusal_of = [&](std::size_t bytes, auto kernel) { return report(4, bytes, kernel, out.data()); };
  CHECK_REPORT(refusal_of(0, static_tile), "kernel zoo: 53248 bytes of static shared memory (", "tile 49152",
               "CUDA allows a kernel 49152");
  CHECK(refusal_of(0, template_tile<12 * 1024>) == "");
  CHECK_REPORT(refusal_of(0, template_tile<12 * 1024 + 1>), "49156 bytes of static shared memory (words 49156)");
  CHECK(refusal_of(227 * 1024 - 4096, template_tile<1024>) == "");
  CHECK_REPORT(refusal_of(227 * 1024 - 4096, template_tile<1025>),
               "4100 bytes of static shared memory (words 4100) and 228352 of dynamic: a GPU of sm_90 allows 232448 together");
}
#endif

TEST_CASE("zoo: what a kernel prints, with the thread that does") {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  REQUIRE(file != nullptr);
  {
    const PrintsTo here(file.get());
    launch("zoo", {dim3(1), dim3(4)}, prints, 1.5f);
    const PrintsTo nowhere(nullptr);
    launch("zoo", {dim3(1), dim3(4)}, prints, 2.5f);
  }
  std::rewind(file.get());
  std::string text(1000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  CHECK(text ==
        "block (0,0,0), thread (2,0,0): 2: 1.5\nblock (0,0,0), thread (2,0,0): and\n"
        "block (0,0,0), thread (3,0,0): 3: 1.5\nblock (0,0,0), thread (3,0,0): and\n");
}

}  // namespace flash
