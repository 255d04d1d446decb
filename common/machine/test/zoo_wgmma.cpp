// Bugs of a product of a warpgroup.
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/test/zoo_tiles.hpp"

#include <array>
#include <cmath>

namespace flash {
namespace {

/// S = Q K^T of ones with depth 16, with room for a mistake at every step.
struct Mistakes {
  bool fence = true, proxy_fence = true, looks_from_the_start = true, commit = true, wait = true;
  int wait_newest = 0, early_read = -1, early_write = -1, store_in_flight = -1, row = 0, threads = 128, other_k = -1, k = 0;
};
__global__ void product(Mistakes m, float* out) {
  const Shared shared;
  if (m.looks_from_the_start && me() == 0)
    mbarrier_init(shared.barrier(0), 1);  // it begins with the first of Hopper's instructions
  for (int i = me(); i < 2 * 4096; i += 128) shared.panel[i] = __float2half(1.0f);  // BUG store without fence
  if (m.proxy_fence) fence_proxy_async();
  __syncthreads();
  if (me() >= m.threads) return;
  const auto Q = k_major<64>(shared.panel, m.row), K = k_major<64>(shared.second());
  float S[32] = {};
  if (m.fence) wgmma_fence();
  wgmma<__half>(S, Q(me() == m.other_k ? 1 : 0), K(m.k), false);  // BUG product
  if (m.commit) wgmma_commit();
  if (me() == m.early_read) out[me()] = S[1];                                  // BUG early read
  if (me() == m.early_write) S[1] = 7.0f;                                      // BUG early write
  if (me() == m.store_in_flight) shared.second()[8 * 0] = __float2half(3.0f);  // BUG store in flight
  if (m.wait && m.wait_newest == 0) wgmma_wait<0>(S);                          // BUG wait
  if (m.wait && m.wait_newest == 1) wgmma_wait<1>(S);                          // BUG wait for one group less
  if (m.wait) out[me()] = S[1];
}

alignas(16) std::array<float, 128> out{};

std::string product_report(const Mistakes& m) { return report(128, shared_bytes, product, m, out.data()); }

}  // namespace

TEST_CASE("zoo: wgmma") {
  CHECK(product_report({}) == "");
  CHECK(out[77] == 16.0f);
  CHECK_REPORT(product_report({.fence = false}), "missing_fence: ", BUG("product"));
  CHECK_REPORT(product_report({.wait = false}), "not_awaited: ", BUG("product"));
  CHECK_REPORT(product_report({.wait_newest = 1}), "wgmma_wait<1> does not wait for these accumulators: the product at ",
               BUG("product"), " is of a newer group at ", BUG("wait for one group less"));
  CHECK_REPORT(product_report({.commit = false}), "wgmma_wait<0> does not wait for these accumulators: the product at ",
               BUG("product"), " may be in no group: wgmma_commit() at ", BUG("wait"));
  CHECK_REPORT(product_report({.row = 4}),
               "wgmma: an operand at byte 512 of shared memory: its tile must begin at a multiple of 1024 at ", BUG("product"));
  CHECK_REPORT(product_report({.k = 4}), "wgmma: an operand leaves dynamic shared memory at byte 16640 at ", BUG("product"));
  CHECK_REPORT(product_report({.other_k = 5}), "warpgroup: ", BUG("product"));
  CHECK_REPORT(product_report({.threads = 96}),
               "the block ends, and only 3 of the 4 warps of the warpgroup took part in this wgmma at ", BUG("product"));
  CHECK_REPORT(report(64, shared_bytes, product, Mistakes{}, out.data()),
               "wgmma needs a warpgroup of 128 threads: the block has only 64 at ", BUG("product"));
}

TEST_CASE("zoo: wgmma, what is touched in flight") {
  CHECK_REPORT(product_report({.proxy_fence = false, .looks_from_the_start = false}),
               "wgmma reads byte 0 of dynamic shared memory, ", "which a thread stored to without fence_proxy_async() at ",
               BUG("product"));
  CHECK(product_report({.looks_from_the_start = false}) == "");
#ifndef FLASH_TSAN  // which calls it a race, and is right
  CHECK_REPORT(product_report({.store_in_flight = 3}),
               machine::instrumented ? "stores to byte 8192 of dynamic shared memory, which the wgmma at "
                                     : "wgmma: shared memory that it reads was changed",
               BUG("product"));
#endif
  if (machine::instrumented) {
    CHECK_REPORT(product_report({.store_in_flight = 3}), "in_flight: ", BUG("store in flight"));
    CHECK_REPORT(product_report({.early_read = 3}), "thread (3,0,0): touches accumulators of the wgmma at ", BUG("product"),
                 " before it has waited for them at ", BUG("early read"));
    CHECK_REPORT(product_report({.early_write = 3}), "thread (3,0,0): touches accumulators of the wgmma at ", BUG("product"),
                 " before it has waited for them at ", BUG("early write"));
    CHECK_REPORT(product_report({.proxy_fence = false}), "wgmma reads byte ", " of dynamic shared memory, which thread ",
                 " stored to at ", BUG("store without fence"), " without fence_proxy_async() at ", BUG("product"));
  } else {
    CHECK_REPORT(product_report({.early_write = 3}), "in_flight: ", BUG("product"));
    CHECK(product_report({.early_read = 3}) == "");
    CHECK(std::isnan(out[3]) == false);  // the right number came later
  }
}

}  // namespace flash
