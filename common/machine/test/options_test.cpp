// Options from code and environment, thread orders, many operating-system threads, what a kernel sees of the grid.
#include "common/machine/test/zoo.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace flash {
namespace {

/// Each thread appends its number to a list.
__global__ void sign_up(int* list, int* count) { list[atomicAdd(count, 1)] = static_cast<int>(threadIdx.x); }

std::vector<int> order_of(const Options& options, unsigned threads) {
  std::vector<int> list(threads);
  int count = 0;
  set_options(options);
  launch("sign_up", {dim3(1), dim3(threads)}, sign_up, list.data(), &count);
  set_options({});
  return list;
}

/// Where in the grid each thread is, in the order in which CUDA numbers threads.
__global__ void coordinates(uint3* thread, uint3* block) {
  const unsigned in_block = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned of_block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned i = of_block * blockDim.x * blockDim.y * blockDim.z + in_block;
  thread[i] = threadIdx;
  block[i] = blockIdx;
}

__global__ void fail_in_block(unsigned from) {
  if (blockIdx.x >= from) fail(RuleId::trap, Site::here(), "this block fails");
}

__global__ void throw_an_error() { throw std::runtime_error("from a kernel"); }

/// The message of the UsageError that reading the environment gives, "" if there is none.
std::string refused(const char* name, const char* value) {
  setenv(name, value, 1);
  std::string message;
  try {
    options_from_environment();
  } catch (const UsageError& error) {
    message = error.what();
  }
  unsetenv(name);
  return message;
}

}  // namespace

TEST_CASE("options: the order of threads") {
  std::vector<int> ascending(100);
  std::iota(ascending.begin(), ascending.end(), 0);
  const std::vector<int> descending(ascending.rbegin(), ascending.rend());
  CHECK(order_of({}, 100) == ascending);
  CHECK(order_of({.order = Order::reverse}, 100) == descending);
  std::vector<int> some = order_of({.order = Order::random, .seed = 1}, 100);
  CHECK(some == order_of({.order = Order::random, .seed = 1}, 100));
  CHECK(some != order_of({.order = Order::random, .seed = 2}, 100));
  CHECK(some != ascending);
  std::sort(some.begin(), some.end());
  CHECK(some == ascending);
}

TEST_CASE("options: built-in variables, on any number of operating-system threads") {
  const dim3 grid(3, 4, 2), block(5, 2, 3);
  const unsigned threads = 5 * 2 * 3, blocks = 3 * 4 * 2;
  for (const int os_threads : {0, 1, 2, 5, 50}) {
    std::vector<uint3> thread(threads * blocks), block_of(threads * blocks);
    set_options({.os_threads = os_threads});
    launch("coordinates", {grid, block}, coordinates, thread.data(), block_of.data());
    set_options({});
    bool all = true;
    for (unsigned i = 0; i < threads * blocks; ++i) {
      const unsigned t = i % threads, b = i / threads;
      all = all && thread[i].x == t % 5 && thread[i].y == t / 5 % 2 && thread[i].z == t / 10;
      all = all && block_of[i].x == b % 3 && block_of[i].y == b / 3 % 4 && block_of[i].z == b / 12;
    }
    CHECK(all);
  }
}

TEST_CASE("options: the first block that fails is reported, and the next launch is as good as new") {
  for (const int os_threads : {1, 3}) {
    set_options({.os_threads = os_threads});
    CHECK_THROWS_WITH_AS(launch("fails", {dim3(1), dim3(4)}, fail_in_block, 0u),
                         doctest::Contains("kernel fails, block (0,0,0), thread (0,0,0): this block fails at "), KernelError);
    CHECK_THROWS_WITH_AS(launch("fails", {dim3(1), dim3(4)}, throw_an_error), "from a kernel", std::runtime_error);
    launch("passes", {dim3(9), dim3(4)}, fail_in_block, 9u);
    set_options({});
  }
  set_options({.os_threads = 1});
  CHECK_THROWS_WITH_AS(launch("fails", {dim3(9), dim3(4)}, fail_in_block, 5u), doctest::Contains("block (5,0,0)"), KernelError);
  set_options({});
}

TEST_CASE("options: the environment") {
  CHECK(refused("FLASH_SIMT_ORDER", "sideways") ==
        "FLASH_SIMT_ORDER=sideways: allowed are forward, reverse and random:SEED with a whole number as SEED");
  CHECK(refused("FLASH_SIMT_ORDER", "random:") != "");
  CHECK(refused("FLASH_SIMT_ORDER", "random:-1") != "");
  CHECK(refused("FLASH_SIMT_ORDER", "random:1x") != "");
  CHECK(refused("FLASH_SIMT_THREADS", "0") == "FLASH_SIMT_THREADS=0: allowed are 1 to 1024");
  CHECK(refused("FLASH_SIMT_THREADS", "99999999999") != "");
  CHECK(refused("FLASH_SIMT_TARGET", "70") == "FLASH_SIMT_TARGET=70: allowed are 75, 80 and 90");
  CHECK(refused("FLASH_SIMT_STEPS", "0") == "FLASH_SIMT_STEPS=0: allowed are 1 to 2^62");
  CHECK(refused("FLASH_SIMT_STEPS", "1e9") != "");
  CHECK(refused("FLASH_SIMT_ORDER", "") == "");

  const std::pair<const char*, const char*> set[] = {{"FLASH_SIMT_ORDER", "random:17"},
                                                     {"FLASH_SIMT_THREADS", "3"},
                                                     {"FLASH_SIMT_TARGET", "80"},
                                                     {"FLASH_SIMT_STEPS", "5000"}};
  for (const auto& [name, value] : set) setenv(name, value, 1);
  const Options options = options_from_environment();
  for (const auto& each : set) unsetenv(each.first);
  CHECK(options.order == Order::random);
  CHECK(options.seed == 17);
  CHECK(options.os_threads == 3);
  CHECK(options.target_sm == 80);
  CHECK(options.steps == 5000);
}

TEST_CASE("options: synchronisation outside of a kernel") {
  CHECK_THROWS_WITH_AS(__syncthreads(), "__syncthreads is for kernels: it was called outside of one", std::logic_error);
}

}  // namespace flash
