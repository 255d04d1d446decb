// Bugs at named barriers, and of registers that move between warpgroups.
#include "common/machine/hopper.cuh"
#include "common/machine/test/zoo.hpp"

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

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

}  // namespace

TEST_CASE("zoo: named barriers") {
  CHECK_REPORT(report(64, 0, named_counts, 32), "named_barrier_sync(1, 32), but 64 threads are awaited by who came at ",
               BUG("first count"), " at ", BUG("other count"));
  CHECK_REPORT(report(64, 0, named_counts, 48),
               "named_barrier_sync(1, 48): the count must be a multiple of 32 that the block has at ", BUG("other count"));
  CHECK(report(64, 0, named_counts, 64) == "");
  CHECK_REPORT(report(64, 0, named_left_over, 1), "the block ends, and named barrier 2 has 32 of 64 threads at ",
               BUG("named left over"));
  CHECK(report(64, 0, named_left_over, 2) == "");
  CHECK_REPORT(report(64, 0, named_deadlock, 4), "deadlock: threads 0..31 wait in named_barrier_sync at ",
               BUG("named deadlock"), ", threads 32..63 wait in named_barrier_sync at ", BUG("other named barrier"),
               "; named barrier 3 has 32 of 64 threads; named barrier 4 has 32 of 64 threads");
  CHECK_REPORT(report(64, 0, named_deadlock, 0),
               "named_barrier_sync(0, 64): allowed are 1 to 15; 0 is that of __syncthreads at ", BUG("other named barrier"));
  CHECK(report(64, 0, named_deadlock, 3) == "");
}

TEST_CASE("zoo: registers") {
  CHECK_REPORT(report(384, 0, registers_beyond_the_pool, 0), "deadlock: ", "threads 0..255 wait in setmaxnreg_inc at ",
               BUG("pool"), ", the rest exited; setmaxnreg_inc wants 18432 registers more, of which 0 are free");
  CHECK(report(384, 0, registers_beyond_the_pool, 128) == "");
  CHECK_REPORT(report(128, 0, registers_of_one_warp, 32),
               "setmaxnreg is for all four warps of a warpgroup: thread 32 has 248 registers, ", "thread 0 has 64 at ",
               BUG("one warp"));
  CHECK(report(128, 0, registers_of_one_warp, 128) == "");
  CHECK_REPORT(report(128, 0, registers_the_wrong_way), "setmaxnreg_inc<24> by a thread that has 248 registers at ",
               BUG("wrong way"));
}

}  // namespace flash
