// Bugs at mbarriers and named barriers, and of loads by the TMA.
#include "common/device/wgmma.cuh"
#include "common/simt/machine/instrumentation.hpp"
#include "common/simt/test/zoo.hpp"

#include <array>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

/// What a launch with 8 KB of dynamic shared memory has: a panel of 32 rows, another one, mbarriers.
struct Shared {
  float* panel = dynamic_shared<float>(2048 + 64);
  __device__ float* second() const { return panel + 1024; }
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

// ---- bytes ---------------------------------------------------------------------------------------------------------------------------

__global__ void bytes(const float* in, int expected, int wait) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), expected);
    bulk_load(shared.panel, in, 512, shared.barrier(0));
    bulk_load(shared.panel + 128, in, 512, shared.barrier(0));  // BUG bytes
  }
  if (wait != 0) mbarrier_wait(shared.barrier(0), 0);  // BUG wait for bytes
  if (wait != 2) return;
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), 512);
    bulk_load(shared.panel + 256, in, 512, shared.barrier(0));
  }
  mbarrier_wait(shared.barrier(0), 1);
}
__global__ void read_too_early(const float* in, float* out, bool wait) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), 512);
    bulk_load(shared.panel, in, 512, shared.barrier(0));  // BUG load that is read too early
  }
  if (wait) mbarrier_wait(shared.barrier(0), 0);
  out[me()] = shared.panel[me()];  // BUG read too early
  if (!wait) mbarrier_wait(shared.barrier(0), 0);
}
__global__ void second_load(const float* in, bool wait) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) {
      mbarrier_arrive_expect_tx(shared.barrier(0), wait || i == 1 ? 512 : 1024);
      bulk_load(shared.panel, in, 512, shared.barrier(0));  // BUG load over a load
      if (wait) mbarrier_wait(shared.barrier(0), i);
      if (!wait) bulk_load(shared.panel, in, 512, shared.barrier(0));  // BUG second load
    }
  }
}
__global__ void misplaced(const float* in, int to, int from, int size) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), size);
  bulk_load(shared.panel + to, in + from, size, shared.barrier(0));  // BUG misplaced
  mbarrier_wait(shared.barrier(0), 0);
}
__global__ void misplaced_box(const __grid_constant__ TensorMap map, int to) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), 8 * 128);
  tma_load(shared.panel + to, map, shared.barrier(0), 0, 0, 0, 0);  // BUG misplaced box
  mbarrier_wait(shared.barrier(0), 0);
}

// ---- named barriers, registers ---------------------------------------------------------------------------------------------------------

__global__ void named_counts(int other) {
  if (me() < 32) {
    named_barrier_arrive(1, 64);  // BUG first count
  } else {
    named_barrier_sync(1, other);  // BUG other count
  }
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
__global__ void registers_beyond_the_pool(int givers) {
  if (me() >= 256) {
    if (me() < 256 + givers) setmaxnreg_dec<24>();  // BUG only some give
  } else {
    setmaxnreg_inc<240>();  // BUG pool
  }
}
__global__ void registers_of_one_warp(int threads) {
  if (me() < threads) setmaxnreg_dec<64>();  // BUG one warp
}
__global__ void registers_the_wrong_way() {
  setmaxnreg_inc<24>();  // BUG wrong way
}

alignas(16) std::array<float, 1024> in{};
std::array<float, 1024> out{};

}  // namespace

TEST_CASE("zoo: initialisation of mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, never_initialised), "mbarrier_arrive of an mbarrier that nobody has initialised at ",
               BUG("never initialised"));
  CHECK_REPORT(report(64, shared_bytes, initialised_too_late, true, false), "mbarrier_arrive of the mbarrier initialised at ",
               "which this thread cannot know of yet: first __syncthreads() at ", BUG("unknown"));
  CHECK_REPORT(report(64, shared_bytes, initialised_too_late, false, true),
               "which this thread cannot know of yet: first fence_mbarrier_init() and __syncthreads() at ", BUG("unknown"));
  CHECK(report(64, shared_bytes, initialised_too_late, true, true) == "");
  CHECK_REPORT(report(64, shared_bytes, initialised_twice, 0), "mbarrier_init of the mbarrier initialised at ", BUG("first init"),
               ": it is in use at ", BUG("second init"));
  CHECK(report(64, shared_bytes, initialised_twice, 1) == "");
}

TEST_CASE("zoo: arrivals at mbarriers") {
  CHECK_REPORT(report(64, shared_bytes, too_many_arrivals, in.data(), 2), "one arrival too many: phase 0 of the mbarrier initialised at ",
               "has 1 of 1 arrivals and lacks 512 bytes at ", BUG("too many"));
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
  CHECK_REPORT(report(64, shared_bytes, wrong_parity, 2), "mbarrier_wait with parity 2: allowed are 0 and 1 at ", BUG("parity"));
  CHECK(report(64, shared_bytes, gone_on_without, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, gone_on_without, 3), "mbarrier_wait for phase 1 (parity 1) of ",
               "which has gone on without this warp: it is in phase 4 (parity 0) at ", BUG("alias"));
  CHECK_REPORT(report(64, shared_bytes, nobody_arrives, false), "deadlock: threads 32..63 wait in mbarrier_wait at ", BUG("deadlock"),
               ", the rest exited; phase 0 of the mbarrier initialised at ", BUG("init of the deadlock"), " has 31 of 32 arrivals");
  CHECK(report(64, shared_bytes, nobody_arrives, true) == "");
}

TEST_CASE("zoo: bytes of loads") {
  CHECK(report(64, shared_bytes, bytes, in.data(), 1024, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, bytes, in.data(), 1040, 1), "deadlock: threads 0..63 wait in mbarrier_wait at ",
               BUG("wait for bytes"), " has 1 of 1 arrivals and lacks 16 bytes");
  CHECK_REPORT(report(64, shared_bytes, bytes, in.data(), 512, 2), "512 bytes come for phase 0 of the mbarrier initialised at ",
               "which ended without them: they were not expected at ", BUG("bytes"));
  CHECK(report(64, shared_bytes, bytes, in.data(), 1024, 2) == "");
  CHECK_REPORT(report(64, shared_bytes, bytes, in.data(), 1024, 0), "the block ends before its load has landed at ", BUG("bytes"));
  CHECK_REPORT(report(64, shared_bytes, second_load, in.data(), false), "the load overwrites byte 0 of dynamic shared memory before the load at ",
               BUG("load over a load"), " has landed at ", BUG("second load"));
  CHECK(report(64, shared_bytes, second_load, in.data(), true) == "");
  CHECK(report(64, shared_bytes, read_too_early, in.data(), out.data(), true) == "");
  if (machine::instrumented) {
    CHECK_REPORT(report(64, shared_bytes, read_too_early, in.data(), out.data(), false),
                 "reads byte 0 of dynamic shared memory before the load at ", BUG("load that is read too early"), " has landed at ",
                 BUG("read too early"));
  }
}

TEST_CASE("zoo: places and sizes of loads") {
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 2, 0, 16),
               "the address of bulk_load's shared memory must be a multiple of 16, it is 8 bytes beyond one at ", BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 4, 1, 16),
               "the address of bulk_load's global memory must be a multiple of 16, it is 4 bytes beyond one at ", BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 4, 4, 24), "bulk_load of 24 bytes: allowed are multiples of 16 at ",
               BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 2108, 0, 32),
               "bulk_load of 32 bytes that do not lie within the launch's dynamic shared memory at ", BUG("misplaced"));
  CHECK(report(1, shared_bytes, misplaced, in.data(), 4, 4, 16) == "");
  const TensorMap map = tensor_map({in.data(), "K", Dtype::fp16, {1, 1, 16, 64}, {1024, 1024, 64, 1}}, 8);
  CHECK_REPORT(report(1, shared_bytes, misplaced_box, map, 32),
               "the address of tma_load's shared memory must be a multiple of 1024, it is 128 bytes beyond one at ",
               BUG("misplaced box"));
  CHECK(report(1, shared_bytes, misplaced_box, map, 256) == "");
}

TEST_CASE("zoo: named barriers") {
  CHECK_REPORT(report(64, 0, named_counts, 32), "named_barrier_sync(1, 32), but 64 threads are awaited by who came at ",
               BUG("first count"), " at ", BUG("other count"));
  CHECK_REPORT(report(64, 0, named_counts, 48), "named_barrier_sync(1, 48): the count must be a multiple of 32 that the block has at ",
               BUG("other count"));
  CHECK(report(64, 0, named_counts, 64) == "");
  CHECK_REPORT(report(64, 0, named_left_over, 1), "the block ends, and named barrier 2 has 32 of 64 threads at ",
               BUG("named left over"));
  CHECK(report(64, 0, named_left_over, 2) == "");
  CHECK_REPORT(report(64, 0, named_deadlock, 4), "deadlock: threads 0..31 wait in named_barrier_sync at ", BUG("named deadlock"),
               ", threads 32..63 wait in named_barrier_sync at ", BUG("other named barrier"),
               "; named barrier 3 has 32 of 64 threads; named barrier 4 has 32 of 64 threads");
  CHECK_REPORT(report(64, 0, named_deadlock, 0), "named_barrier_sync(0, 64): allowed are 1 to 15; 0 is that of __syncthreads at ",
               BUG("other named barrier"));
  CHECK(report(64, 0, named_deadlock, 3) == "");
}

TEST_CASE("zoo: registers") {
  CHECK_REPORT(report(384, 0, registers_beyond_the_pool, 0), "deadlock: threads 0..255 wait in setmaxnreg_inc at ", BUG("pool"),
               ", the rest exited; setmaxnreg_inc wants 18432 registers more, of which 0 are free");
  CHECK(report(384, 0, registers_beyond_the_pool, 128) == "");
  CHECK_REPORT(report(128, 0, registers_of_one_warp, 32), "setmaxnreg is for all four warps of a warpgroup: thread 32 has 248 registers, ",
               "thread 0 has 64 at ", BUG("one warp"));
  CHECK(report(128, 0, registers_of_one_warp, 128) == "");
  CHECK_REPORT(report(128, 0, registers_the_wrong_way), "setmaxnreg_inc<24> by a thread that has 248 registers at ", BUG("wrong way"));
}

TEST_CASE("zoo: GPUs without Hopper's instructions") {
  set_options({.target_sm = 80});
  CHECK_REPORT(report(64, shared_bytes, left_over_arrival, 2), "mbarrier_init needs sm_90, the target is sm_80 at ", BUG("left over"));
  set_options({});
}

}  // namespace flash
