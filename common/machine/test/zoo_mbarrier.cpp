// Misuse of mbarriers, loads, named barriers and registers, beyond the hazards of zoo_async.cuh.
#include "common/machine/hopper.cuh"
#include "common/machine/test/zoo.hpp"

#include <array>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

/// What a launch with 8 KB of dynamic shared memory has: two panels of 32 rows, mbarriers.
struct Shared {
  float* panel = dynamic_shared<float>(2048 + 64);
  __device__ Mbarrier& barrier(int i) const { return reinterpret_cast<Mbarrier*>(panel + 2048)[i]; }
};
constexpr std::size_t shared_bytes = 4 * (2048 + 64);

/// Initialises the first `count` mbarriers, each for so many arrivals.
__device__ void start(const Shared& shared, int count, int arrivals) {
  if (me() == 0) {
    for (int i = 0; i < count; ++i) mbarrier_init(shared.barrier(i), arrivals);
    fence_mbarrier_init();
  }
  __syncthreads();
}

__global__ void never_initialised() {
  const Shared shared;
  mbarrier_arrive(shared.barrier(0));  // BUG never initialised
}
__global__ void odd_initialisation(int arrivals, int byte) {
  const Shared shared;
  mbarrier_init(*reinterpret_cast<Mbarrier*>(reinterpret_cast<char*>(shared.panel) + byte), arrivals);  // BUG odd
}
__global__ void odd_bytes(int expected) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() == 0) mbarrier_arrive_expect_tx(shared.barrier(0), expected);  // BUG odd bytes
}
__global__ void initialised_twice(int again) {
  const Shared shared;
  if (me() != 0) return;
  mbarrier_init(shared.barrier(0), 1);      // BUG first init
  mbarrier_init(shared.barrier(again), 1);  // BUG second init
}

__global__ void left_over_arrival(int arrivals) {
  const Shared shared;
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 2);  // BUG left over
    fence_mbarrier_init();
  }
  __syncthreads();
  if (me() < arrivals) mbarrier_arrive(shared.barrier(0));
}
__global__ void wrong_parity(int second) {
  const Shared shared;
  start(shared, 1, 64);
  mbarrier_arrive(shared.barrier(0));
  mbarrier_wait(shared.barrier(0), 0);
  mbarrier_arrive(shared.barrier(0));
  mbarrier_wait(shared.barrier(0), second);  // BUG parity
}
/// Warp 1 waits for the first round, then for the second, while warp 0 has gone on to the fourth.
__global__ void gone_on_without(int rounds) {
  const Shared shared;
  start(shared, 2, 32);
  if (me() < 32) {
    mbarrier_arrive(shared.barrier(0));
    mbarrier_wait(shared.barrier(1), 0);
    for (int i = 0; i < rounds; ++i) mbarrier_arrive(shared.barrier(0));
    mbarrier_arrive(shared.barrier(1));
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    mbarrier_arrive(shared.barrier(1));
    mbarrier_wait(shared.barrier(1), 0);
    mbarrier_wait(shared.barrier(1), 1);
    mbarrier_wait(shared.barrier(0), 1);  // BUG alias
  }
}
__global__ void nobody_arrives(bool arrive) {
  const Shared shared;
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 32);  // BUG init of the deadlock
    fence_mbarrier_init();
  }
  __syncthreads();
  if (me() < 32) {
    if (arrive || me() < 31) mbarrier_arrive(shared.barrier(0));
  } else {
    mbarrier_wait(shared.barrier(0), 0);  // BUG deadlock
  }
}

__global__ void not_landed(const float* in) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), 512);
  bulk_load(shared.panel, in, 512, shared.barrier(0));  // BUG not landed
}
__global__ void misplaced(const float* in, int to, int from, int size) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), size);
  bulk_load(shared.panel + to, in + from, size, shared.barrier(0));  // BUG misplaced
  mbarrier_wait(shared.barrier(0), 0);
}
__global__ void misplaced_box(const __grid_constant__ TensorMap map, int to, int col, int row_of_store) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), 8 * 128);
  tma_load(shared.panel + to, map, shared.barrier(0), col, 0, 0, 0);  // BUG misplaced box
  mbarrier_wait(shared.barrier(0), 0);
  if (row_of_store != 0) tma_store(map, shared.panel + to, 0, row_of_store, 0, 0);  // BUG box of a store
}

__global__ void named_left_over(int warps) {
  if (me() < 32 * warps) named_barrier_arrive(2, 64);  // BUG named left over
}
__global__ void named_deadlock(int id) {
  if (me() < 32) {
    named_barrier_sync(3, 64);  // BUG named deadlock
  } else {
    named_barrier_sync(id, 64);  // BUG other named barrier
  }
}
__global__ void registers_of_one_warp(int threads) {
  if (me() < threads) setmaxnreg_dec<64>();  // BUG one warp
}
__global__ void registers_the_wrong_way() {
  setmaxnreg_inc<24>();  // BUG wrong way
}

alignas(16) std::array<float, 1024> in{};

}  // namespace

TEST_CASE("zoo: initialisation of mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, never_initialised), "mbarrier: ", BUG("never initialised"));
  CHECK_REPORT(report(1, shared_bytes, odd_initialisation, 0, 8), "bad_argument: ", BUG("odd"));
#ifndef FLASH_ASAN  // which reports it at the line itself, and ends the program
  CHECK_REPORT(report(1, shared_bytes, odd_initialisation, 1, 4), "misaligned: ", BUG("odd"));
#endif
  CHECK(report(1, shared_bytes, odd_initialisation, 1, 8) == "");
  CHECK_REPORT(report(1, shared_bytes, odd_bytes, -16), "bad_argument: ", BUG("odd bytes"));
  CHECK(report(1, shared_bytes, odd_bytes, 0) == "");
  CHECK_REPORT(report(64, shared_bytes, initialised_twice, 0), "mbarrier: ", BUG("first init"), BUG("second init"));
  CHECK(report(64, shared_bytes, initialised_twice, 1) == "");
}

TEST_CASE("zoo: arrivals at mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, left_over_arrival, 1), "mbarrier: ", BUG("left over"));
  CHECK(report(64, shared_bytes, left_over_arrival, 2) == "");
}

TEST_CASE("zoo: phases of mbarriers") {
  CHECK(report(64, shared_bytes, wrong_parity, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, wrong_parity, 2), "bad_argument: ", BUG("parity"));
  CHECK(report(64, shared_bytes, gone_on_without, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, gone_on_without, 3), "mbarrier: ", BUG("alias"));
  CHECK_REPORT(report(64, shared_bytes, nobody_arrives, false), "deadlock: ", "threads 32..63 wait in mbarrier_wait at ",
               BUG("deadlock"), ", the rest exited; phase 0 of the mbarrier initialised at ", BUG("init of the deadlock"),
               " has 31 of 32 arrivals");
  CHECK(report(64, shared_bytes, nobody_arrives, true) == "");
}

TEST_CASE("zoo: places and sizes of loads") {
  CHECK_REPORT(report(1, shared_bytes, not_landed, in.data()), "not_awaited: ", BUG("not landed"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 2, 0, 16), "misaligned: ", BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 4, 1, 16), "misaligned: ", BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 4, 4, 24), "bad_argument: ", BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 2108, 0, 32), "out_of_bounds: ", BUG("misplaced"));
  CHECK(report(1, shared_bytes, misplaced, in.data(), 4, 4, 16) == "");
  const TensorMap map = tensor_map({in.data(), "K", Dtype::fp16, {1, 1, 16, 64}, {1024, 1024, 64, 1}}, 8);
  CHECK_REPORT(report(1, shared_bytes, misplaced_box, map, 32, 0, 0), "misaligned: ", BUG("misplaced box"));
  CHECK_REPORT(report(1, shared_bytes, misplaced_box, map, 0, -9, 0), "bad_argument: ", BUG("misplaced box"));
  CHECK_REPORT(report(1, shared_bytes, misplaced_box, map, 0, 0, -8), "bad_argument: ", BUG("box of a store"));
  CHECK(report(1, shared_bytes, misplaced_box, map, 256, 8, 0) == "");
}

TEST_CASE("zoo: named barriers") {
  CHECK_REPORT(report(64, 0, named_left_over, 1), "named_barrier: ", BUG("named left over"));
  CHECK(report(64, 0, named_left_over, 2) == "");
  CHECK_REPORT(report(64, 0, named_deadlock, 4), "deadlock: ", BUG("named deadlock"), BUG("other named barrier"));
  CHECK_REPORT(report(64, 0, named_deadlock, 0), "bad_argument: ", BUG("other named barrier"));
  CHECK(report(64, 0, named_deadlock, 3) == "");
}

TEST_CASE("zoo: registers") {
  CHECK_REPORT(report(128, 0, registers_of_one_warp, 32), "warpgroup: ", BUG("one warp"));
  CHECK(report(128, 0, registers_of_one_warp, 128) == "");
  CHECK_REPORT(report(128, 0, registers_the_wrong_way), "bad_argument: ", BUG("wrong way"));
}

TEST_CASE("zoo: GPUs without Hopper's instructions") {
  set_options({.target_sm = 80});
  CHECK_REPORT(report(64, shared_bytes, odd_bytes, 0), "unsupported: ", BUG("odd bytes"));
  set_options({});
}

}  // namespace flash
