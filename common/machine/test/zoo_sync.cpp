// Bugs at barriers and in warp operations.
#include "common/machine/test/zoo.hpp"

namespace flash {
namespace {

constexpr unsigned FULL = 0xffffffffu;

// ---- barriers ----------------------------------------------------------------------------------------------------------------

__global__ void divergent_barrier() {
  if (threadIdx.x < 32) {
    __syncthreads();  // BUG divergent, one side
  } else {
    __syncthreads();  // BUG divergent, other side
  }
}
__global__ void divergent_barrier_right() {
  if (threadIdx.x < 32) __syncwarp();
  __syncthreads();
}

// ---- warp operations -------------------------------------------------------------------------------------------------------------

__global__ void half_warp(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_down_sync(FULL, static_cast<int>(threadIdx.x), 8);  // BUG half warp
  }
}

__global__ void early_return(int* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  out[threadIdx.x] = __shfl_xor_sync(FULL, static_cast<int>(threadIdx.x), 1);  // BUG early return
}

std::vector<int> out(64);

}  // namespace

TEST_CASE("zoo: divergent barrier") {
  CHECK_REPORT(report(64, 0, divergent_barrier), "divergent_barrier: kernel zoo, block (0,0,0)",
               "divergent barrier: threads 0..31 wait in __syncthreads at ", BUG("divergent, one side"),
               ", threads 32..63 wait in __syncthreads at ", BUG("divergent, other side"));
  CHECK(report(64, 0, divergent_barrier_right) == "");
}

TEST_CASE("zoo: half-warp shuffle with a full mask") {
  CHECK_REPORT(report(32, 0, half_warp, out.data()), "absent_lane: ", "threads 0..15 wait in __shfl_down_sync at ",
               BUG("half warp"), ", the rest exited");
  set_options({.order = Order::reverse});  // now the other half has exited before
  CHECK_REPORT(report(32, 0, half_warp, out.data()),
               "thread (15,0,0): __shfl_down_sync: the mask names lanes 16..31, which exited before at ", BUG("half warp"));
  set_options({});
}

TEST_CASE("zoo: early return before a shuffle") {
  CHECK_REPORT(report(32, 0, early_return, out.data(), 20), "threads 0..19 wait in __shfl_xor_sync at ", BUG("early return"),
               ", the rest exited");
}

}  // namespace flash
