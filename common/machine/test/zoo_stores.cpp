// Bugs of what the TMA stores.
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/hopper.cuh"
#include "common/machine/test/zoo.hpp"

#include <array>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

struct StoreMistakes {
  bool fence = true, commit = true, wait = true;
  int overwrite = 0;  ///< 1 before, 2 after the wait
};
__global__ void store_numbers(StoreMistakes m, float* out) {
  float* const numbers = dynamic_shared<float>(128);
  numbers[me()] = 5.0f;
  if (m.fence) fence_proxy_async();
  __syncthreads();
  if (me() == 0) {
    bulk_store(out, numbers, 512);  // BUG bulk store
    if (m.commit) bulk_commit();
    if (m.overwrite == 1) numbers[0] = 6.0f;  // BUG overwritten
    if (m.wait) bulk_wait_read<0>();
    if (m.overwrite == 2) numbers[0] = 6.0f;
  }
}

/// Thread 0 gives the place back before or after its store has read it; thread 32 loads the next numbers into it.
__global__ void place_given_back(const float* in, float* out, bool late) {
  float* const numbers = dynamic_shared<float>(128 + 4);
  Mbarrier* const barriers = reinterpret_cast<Mbarrier*>(numbers + 128);
  if (me() == 0) {
    mbarrier_init(barriers[0], 1);
    mbarrier_init(barriers[1], 1);
    fence_mbarrier_init();
  }
  for (int i = me(); i < 128; i += 64) numbers[i] = 5.0f;
  fence_proxy_async();
  __syncthreads();
  if (me() == 0) {
    bulk_store(out, numbers, 512);  // BUG store that still reads
    bulk_commit();
    if (!late) mbarrier_arrive(barriers[0]);
    bulk_wait_read<0>();
    if (late) mbarrier_arrive(barriers[0]);
  } else if (me() == 32) {
    mbarrier_wait(barriers[0], 0);
    mbarrier_arrive_expect_tx(barriers[1], 512);
    bulk_load(numbers, in, 512, barriers[1]);  // BUG load into its place
    mbarrier_wait(barriers[1], 0);
  }
}

alignas(16) std::array<float, 128> in{};
alignas(16) std::array<float, 128> out{};

}  // namespace

TEST_CASE("zoo: bulk stores") {
  const auto with = [](const StoreMistakes& m) { return report(128, 512, store_numbers, m, out.data()); };
  CHECK(with({}) == "");
  CHECK(out[127] == 5.0f);
  CHECK_REPORT(with({.commit = false, .wait = false}), "not_awaited: ", BUG("bulk store"));
  CHECK_REPORT(with({.commit = false}), "not_awaited: ", BUG("bulk store"));
  CHECK_REPORT(with({.wait = false}), "not_awaited: ", BUG("bulk store"));
  CHECK(with({.overwrite = 2}) == "");
  CHECK(out[0] == 5.0f);
  if (machine::instrumented) {
    CHECK_REPORT(with({.overwrite = 1}), "stores to byte 0 of dynamic shared memory, which the bulk_store at ",
                 BUG("bulk store"), " still reads at ", BUG("overwritten"));
    CHECK_REPORT(with({.fence = false}),
                 "bulk_store reads byte 0 of dynamic shared memory, which a thread stored to without fence_proxy_async() at ",
                 BUG("bulk store"));
  } else {
    CHECK(with({.overwrite = 1}) == "");
    CHECK(out[0] == 6.0f);
  }
}

TEST_CASE("zoo: a place that is given back while a store reads it") {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    set_options({.order = order, .seed = 5});
    CHECK_REPORT(report(64, 528, place_given_back, in.data(), out.data(), false),
                 "the load overwrites byte 0 of dynamic shared memory, which the bulk_store at ", BUG("store that still reads"),
                 " still reads at ", BUG("load into its place"));
    CHECK(report(64, 528, place_given_back, in.data(), out.data(), true) == "");
    CHECK(out[127] == 5.0f);
  }
  set_options({});
}

}  // namespace flash
