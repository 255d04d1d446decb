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

__global__ void one_thread_too_few() {
  if (threadIdx.x == 63) return;
  __syncthreads();  // BUG too few
}

__global__ void barrier_meets_shuffle(int* out) {
  if (threadIdx.x == 40) {
    __syncthreads();  // BUG met by a shuffle
    return;
  }
  if (threadIdx.x >= 32) {
    out[threadIdx.x] = __shfl_xor_sync(FULL, static_cast<int>(threadIdx.x), 1);  // BUG shuffle that meets a barrier
  }
}
__global__ void barrier_meets_shuffle_right(int* out) {
  if (threadIdx.x >= 32) out[threadIdx.x] = __shfl_xor_sync(FULL, static_cast<int>(threadIdx.x), 1);
  __syncthreads();
}

// ---- warp operations -------------------------------------------------------------------------------------------------------------

__global__ void half_warp(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_down_sync(FULL, static_cast<int>(threadIdx.x), 8);  // BUG half warp
  }
}

__global__ void from_absent_lane(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_sync(0xffffu, 7, 20);  // BUG absent source
  }
}

__global__ void early_return(int* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  out[threadIdx.x] = __shfl_xor_sync(FULL, static_cast<int>(threadIdx.x), 1);  // BUG early return
}

__global__ void not_in_its_own_mask(int* out) {
  out[threadIdx.x] = __any_sync(0x7fffffffu, 1);  // BUG own mask
}

__global__ void different_operations(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __any_sync(FULL, 1);  // BUG even lanes
  } else {
    out[threadIdx.x] = __all_sync(FULL, 1);  // BUG odd lanes
  }
}

__global__ void bad_width(int* out) {
  out[threadIdx.x] = __shfl_sync(FULL, 1, 0, 12);  // BUG width
}

std::vector<int> out(64);

}  // namespace

TEST_CASE("zoo: divergent barrier") {
  CHECK_REPORT(report(64, 0, divergent_barrier), "divergent_barrier: kernel zoo, block (0,0,0)",
               "divergent barrier: threads 0..31 wait in __syncthreads at ", BUG("divergent, one side"),
               ", threads 32..63 wait in __syncthreads at ", BUG("divergent, other side"));
  CHECK(report(64, 0, divergent_barrier_right) == "");
}

TEST_CASE("zoo: one thread too few at a barrier") {
  CHECK_REPORT(report(64, 0, one_thread_too_few), "divergent_barrier: ", "threads 0..62 wait in __syncthreads at ",
               BUG("too few"), ", the rest exited");
}

TEST_CASE("zoo: barrier met by a shuffle") {
  CHECK_REPORT(report(64, 0, barrier_meets_shuffle, out.data()),
               "absent_lane: ", "threads 32..39, 41..63 wait in __shfl_xor_sync at ", BUG("shuffle that meets a barrier"),
               ", thread 40 waits in __syncthreads at ", BUG("met by a shuffle"), ", the rest exited");
  CHECK(report(64, 0, barrier_meets_shuffle_right, out.data()) == "");
}

TEST_CASE("zoo: half-warp shuffle with a full mask") {
  CHECK_REPORT(report(32, 0, half_warp, out.data()), "absent_lane: ", "threads 0..15 wait in __shfl_down_sync at ",
               BUG("half warp"), ", the rest exited");
  set_options({.order = Order::reverse});  // now the other half has exited before
  CHECK_REPORT(report(32, 0, half_warp, out.data()),
               "thread (15,0,0): __shfl_down_sync: the mask names lanes 16..31, which exited before at ", BUG("half warp"));
  set_options({});
}

TEST_CASE("zoo: shuffle from an absent lane") {
  CHECK_REPORT(report(32, 0, from_absent_lane, out.data()),
               "__shfl_sync: lane 0 reads from lane 20, which does not take part: ", "the mask names lanes 0..15 at ",
               BUG("absent source"));
}

TEST_CASE("zoo: early return before a shuffle") {
  CHECK_REPORT(report(32, 0, early_return, out.data(), 20), "threads 0..19 wait in __shfl_xor_sync at ", BUG("early return"),
               ", the rest exited");
}

TEST_CASE("zoo: a lane outside of its own mask") {
  CHECK_REPORT(report(32, 0, not_in_its_own_mask, out.data()), "absent_lane: ", BUG("own mask"));
}

TEST_CASE("zoo: lanes in different operations") {
  CHECK_REPORT(report(32, 0, different_operations, out.data()), "absent_lane: ", "threads 0, 2, 4", " wait in __any_sync at ",
               BUG("even lanes"), ", threads 1, 3, 5", " wait in __all_sync at ", BUG("odd lanes"));
}

TEST_CASE("zoo: a shuffle's width") {
  CHECK_REPORT(report(32, 0, bad_width, out.data()), "bad_argument: ", "a width of 12", BUG("width"));
}

}  // namespace flash
