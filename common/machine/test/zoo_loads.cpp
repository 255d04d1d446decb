// Bugs of loads by the TMA: their bytes, their targets, when they are read.
#include "common/machine/engine/instrumentation.hpp"
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
__global__ void load_over_store(const float* in, bool fence) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  shared.panel[5] = 1.0f;  // BUG store before a load
  if (fence) fence_proxy_async();
  mbarrier_arrive_expect_tx(shared.barrier(0), 512);
  bulk_load(shared.panel, in, 512, shared.barrier(0));  // BUG load over a store
  mbarrier_wait(shared.barrier(0), 0);
}
__global__ void misplaced(const float* in, int to, int from, int size) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), size);
  bulk_load(shared.panel + to, in + from, size, shared.barrier(0));  // BUG misplaced
  mbarrier_wait(shared.barrier(0), 0);
}
__global__ void misplaced_box(const __grid_constant__ TensorMap map, int to, int col) {
  const Shared shared;
  start(shared, 1, 1);
  if (me() != 0) return;
  mbarrier_arrive_expect_tx(shared.barrier(0), 8 * 128);
  tma_load(shared.panel + to, map, shared.barrier(0), col, 0, 0, 0);  // BUG misplaced box
  mbarrier_wait(shared.barrier(0), 0);
}

alignas(16) std::array<float, 1024> in{};
std::array<float, 1024> out{};

}  // namespace

TEST_CASE("zoo: bytes of loads") {
  CHECK(report(64, shared_bytes, bytes, in.data(), 1024, 1) == "");
  CHECK_REPORT(report(64, shared_bytes, bytes, in.data(), 1040, 1), "deadlock: threads 0..63 wait in mbarrier_wait at ",
               BUG("wait for bytes"), " has 1 of 1 arrivals and lacks 16 bytes");
  CHECK_REPORT(report(64, shared_bytes, bytes, in.data(), 512, 2), "512 bytes come for phase 0 of the mbarrier initialised at ",
               "which ended without them: they were not expected at ", BUG("bytes"));
  CHECK(report(64, shared_bytes, bytes, in.data(), 1024, 2) == "");
  CHECK_REPORT(report(64, shared_bytes, bytes, in.data(), 1024, 0), "the block ends before its load has landed at ",
               BUG("bytes"));
  CHECK_REPORT(report(64, shared_bytes, second_load, in.data(), false),
               "the load overwrites byte 0 of dynamic shared memory before the load at ", BUG("load over a load"),
               " has landed at ", BUG("second load"));
  CHECK(report(64, shared_bytes, second_load, in.data(), true) == "");
  CHECK(report(64, shared_bytes, load_over_store, in.data(), true) == "");
  CHECK(report(64, shared_bytes, read_too_early, in.data(), out.data(), true) == "");
  if (machine::instrumented) {
    CHECK_REPORT(report(64, shared_bytes, read_too_early, in.data(), out.data(), false),
                 "reads byte 0 of dynamic shared memory before the load at ", BUG("load that is read too early"),
                 " has landed at ", BUG("read too early"));
    CHECK_REPORT(report(64, shared_bytes, load_over_store, in.data(), false),
                 "the load overwrites byte 16 of dynamic shared memory, which thread 0 stored to at ",
                 BUG("store before a load"), " without fence_proxy_async() at ", BUG("load over a store"));
  }
}

TEST_CASE("zoo: places and sizes of loads") {
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 2, 0, 16),
               "the address of bulk_load's shared memory must be a multiple of 16, it is 8 bytes beyond one at ",
               BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 4, 1, 16),
               "the address of bulk_load's global memory must be a multiple of 16, it is 4 bytes beyond one at ",
               BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 4, 4, 24),
               "bulk_load of 24 bytes: allowed are multiples of 16 at ", BUG("misplaced"));
  CHECK_REPORT(report(1, shared_bytes, misplaced, in.data(), 2108, 0, 32),
               "bulk_load of 32 bytes that do not lie within the launch's dynamic shared memory at ", BUG("misplaced"));
  CHECK(report(1, shared_bytes, misplaced, in.data(), 4, 4, 16) == "");
  const TensorMap map = tensor_map({in.data(), "K", Dtype::fp16, {1, 1, 16, 64}, {1024, 1024, 64, 1}}, 8);
  CHECK_REPORT(report(1, shared_bytes, misplaced_box, map, 32, 0),
               "the address of tma_load's shared memory must be a multiple of 1024, it is 128 bytes beyond one at ",
               BUG("misplaced box"));
  CHECK_REPORT(report(1, shared_bytes, misplaced_box, map, 0, -9),
               "tma_load of a box from column -9 on: allowed are multiples of 8, which are 16 bytes at ", BUG("misplaced box"));
  CHECK(report(1, shared_bytes, misplaced_box, map, 256, 8) == "");
}

}  // namespace flash
