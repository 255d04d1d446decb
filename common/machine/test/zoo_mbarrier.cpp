// Bugs at mbarriers.
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

// ---- initialisation ------------------------------------------------------------------------------------------------------------------

__global__ void never_initialised() {
  const Shared shared;
  mbarrier_arrive(shared.barrier(0));  // BUG never initialised
}
__global__ void initialised_too_late(bool fence, bool barrier) {
  const Shared shared;
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 64);
    if (fence) fence_mbarrier_init();
  }
  if (barrier) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  mbarrier_arrive(shared.barrier(0));  // BUG unknown
}
/// One thread alone: what it initialises it knows, but the TMA does not.
__global__ void unknown_to_the_tma(const float* in, bool fence) {
  const Shared shared;
  if (me() != 0) return;
  mbarrier_init(shared.barrier(0), 1);
  if (fence) fence_mbarrier_init();
  mbarrier_arrive_expect_tx(shared.barrier(0), 16);
  bulk_load(shared.panel, in, 16, shared.barrier(0));  // BUG unknown to the TMA
  mbarrier_wait(shared.barrier(0), 0);
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

// ---- arrivals and phases -------------------------------------------------------------------------------------------------------------

__global__ void too_many_arrivals(const float* in, int arrivals) {
  const Shared shared;
  start(shared, 1, 1);  // only by mbarrier_init
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), 512);
    for (int i = 1; i < arrivals; ++i) mbarrier_arrive(shared.barrier(0));  // BUG too many
    bulk_load(shared.panel, in, 512, shared.barrier(0));
  }
  mbarrier_wait(shared.barrier(0), 0);
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
/// Two rounds; the second wait has the parity of the first one.
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

alignas(16) std::array<float, 1024> in{};

}  // namespace

TEST_CASE("zoo: initialisation of mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, never_initialised), "mbarrier: ", BUG("never initialised"));
  CHECK_REPORT(report(64, shared_bytes, initialised_too_late, true, false), "mbarrier_arrive of the mbarrier initialised at ",
               "which this thread cannot know of yet: first __syncthreads() at ", BUG("unknown"));
  CHECK_REPORT(report(64, shared_bytes, initialised_too_late, false, true), "mbarrier: ", BUG("unknown"));
  CHECK(report(64, shared_bytes, initialised_too_late, true, true) == "");
  CHECK_REPORT(report(1, shared_bytes, unknown_to_the_tma, in.data(), false), "a load for the mbarrier initialised at ",
               "which the TMA cannot know of: first fence_mbarrier_init() at ", BUG("unknown to the TMA"));
  CHECK(report(1, shared_bytes, unknown_to_the_tma, in.data(), true) == "");
  CHECK_REPORT(report(1, shared_bytes, odd_initialisation, 0, 8), "mbarrier_init for 0 arrivals: allowed are 1 to 2^20 - 1 at ",
               BUG("odd"));
#ifndef FLASH_ASAN  // which reports it at the line itself, and ends the program
  CHECK_REPORT(report(1, shared_bytes, odd_initialisation, 1, 4), "an mbarrier lies at a multiple of 8 bytes at ", BUG("odd"));
#endif
  CHECK(report(1, shared_bytes, odd_initialisation, 1, 8) == "");
  CHECK_REPORT(report(1, shared_bytes, odd_bytes, -16), "an mbarrier cannot expect -16 bytes: allowed are 0 to 2^20 - 1 at ",
               BUG("odd bytes"));
  CHECK(report(1, shared_bytes, odd_bytes, 0) == "");
  CHECK_REPORT(report(64, shared_bytes, initialised_twice, 0), "mbarrier_init of the mbarrier initialised at ",
               BUG("first init"), ": it is in use at ", BUG("second init"));
  CHECK(report(64, shared_bytes, initialised_twice, 1) == "");
}

TEST_CASE("zoo: arrivals at mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, too_many_arrivals, in.data(), 2),
               "one arrival too many: phase 0 of the mbarrier initialised at ", "has 1 of 1 arrivals and lacks 512 bytes at ",
               BUG("too many"));
  CHECK(report(64, shared_bytes, too_many_arrivals, in.data(), 1) == "");
  CHECK_REPORT(report(64, shared_bytes, left_over_arrival, 1), "the block ends, and phase 0 of the mbarrier initialised at ",
               " has 1 of 2 arrivals at ", BUG("left over"));
  CHECK(report(64, shared_bytes, left_over_arrival, 2) == "");
}

TEST_CASE("zoo: phases of mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, wrong_parity, 0),
               "mbarrier_wait with the wrong parity: this warp has waited for phase 0 (parity 0) of ",
               "next comes phase 1 (parity 1) at ", BUG("parity"));
  CHECK(report(64, shared_bytes, wrong_parity, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, wrong_parity, 2), "mbarrier_wait with parity 2: allowed are 0 and 1 at ",
               BUG("parity"));
  CHECK(report(64, shared_bytes, gone_on_without, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, gone_on_without, 3), "mbarrier_wait for phase 1 (parity 1) of ",
               "which has gone on without this warp: it is in phase 4 (parity 0) at ", BUG("alias"));
  CHECK_REPORT(report(64, shared_bytes, nobody_arrives, false), "deadlock: ", "threads 32..63 wait in mbarrier_wait at ",
               BUG("deadlock"), ", the rest exited; phase 0 of the mbarrier initialised at ", BUG("init of the deadlock"),
               " has 31 of 32 arrivals");
  CHECK(report(64, shared_bytes, nobody_arrives, true) == "");
}

TEST_CASE("zoo: GPUs without Hopper's instructions") {
  set_options({.target_sm = 80});
  CHECK_REPORT(report(64, shared_bytes, left_over_arrival, 2), "mbarrier_init needs sm_90, the target is sm_80 at ",
               BUG("left over"));
  set_options({});
}

}  // namespace flash
