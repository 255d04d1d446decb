// Bugs of products of a warpgroup.
#include "common/device/fragments.hpp"
#include "common/device/wgmma.cuh"
#include "common/simt/machine/instrumentation.hpp"
#include "common/simt/test/zoo.hpp"

#include <array>
#include <cmath>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

/// Two panels of 64 rows and mbarriers.
struct Shared {
  __half* panel = dynamic_shared<__half>(2 * 4096 + 128);
  __device__ __half* second() const { return panel + 4096; }
  __device__ Mbarrier& barrier(int i) const { return reinterpret_cast<Mbarrier*>(panel + 2 * 4096)[i]; }
  /// This thread's part of both.
  __device__ void fill() const {
    for (int i = me(); i < 2 * 4096; i += 128) panel[i] = __float2half(1.0f);  // BUG store without fence
  }
};
constexpr std::size_t shared_bytes = 2 * (2 * 4096 + 128);

/// S = Q K^T of ones with depth 16, with room for a mistake at every step.
struct Mistakes {
  bool fence = true, proxy_fence = true, looks_from_the_start = true, commit = true, wait = true;
  int wait_newest = 0, early_read = -1, early_write = -1, store_in_flight = -1, row = 0, threads = 128, other_k = -1;
};
__global__ void product(Mistakes m, float* out) {
  const Shared shared;
  if (m.looks_from_the_start && me() == 0)
    mbarrier_init(shared.barrier(0), 1);  // it begins with the first of Hopper's instructions
  shared.fill();
  if (m.proxy_fence) fence_proxy_async();
  __syncthreads();
  if (me() >= m.threads) return;
  const auto Q = k_major<64>(shared.panel, m.row), K = k_major<64>(shared.second());
  float S[32] = {};
  if (m.fence) wgmma_fence();
  wgmma<__half>(S, Q(me() == m.other_k ? 1 : 0), K(0), false);  // BUG product
  if (m.commit) wgmma_commit();
  if (me() == m.early_read) out[me()] = S[1];                                  // BUG early read
  if (me() == m.early_write) S[1] = 7.0f;                                      // BUG early write
  if (me() == m.store_in_flight) shared.second()[8 * 0] = __float2half(3.0f);  // BUG store in flight
  if (m.wait && m.wait_newest == 0) wgmma_wait<0>(S);                          // BUG wait
  if (m.wait && m.wait_newest == 1) wgmma_wait<1>(S);                          // BUG wait for one group less
  if (m.wait) out[me()] = S[1];
}

__global__ void touched_without_fence(bool fence, float* out) {
  const Shared shared;
  shared.fill();
  fence_proxy_async();
  __syncthreads();
  const auto Q = k_major<64>(shared.panel), K = k_major<64>(shared.second());
  float S[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);
  wgmma_commit();
  wgmma_wait<0>(S);
  for (float& x : S) x *= 0.5f;
  if (fence) wgmma_fence();
  wgmma<__half>(S, Q(1), K(1), true);  // BUG touched without fence
  wgmma_commit();
  wgmma_wait<0>(S);
  out[me()] = S[0];
}

/// O += P V twice, with P in registers.
__global__ void operand_in_registers(int change, float* out) {
  const Shared shared;
  shared.fill();
  fence_proxy_async();
  __syncthreads();
  const auto V = mn_major<64>(shared.panel);
  float O[32] = {};
  const unsigned one = pack_f16(1.0f, 1.0f);
  unsigned P[4] = {one, one, one, one};
  wgmma_fence();
  wgmma<__half>(O, P, V(0), true);  // BUG operand in flight
  wgmma_commit();
  if (change == 1) P[0] = 0;
  wgmma_wait<0>();
  if (change == 2) P[0] = 0;
  wgmma_fence();
  wgmma<__half>(O, P, V(1), true);
  wgmma_commit();
  wgmma_wait<0>(O);
  out[me()] = O[0];
}

/// Two products with the same P in registers, for different accumulators.
__global__ void operand_changed(bool fence, float* out) {
  const Shared shared;
  shared.fill();
  fence_proxy_async();
  __syncthreads();
  const auto V = mn_major<64>(shared.panel);
  float O[32], other[32];
  unsigned P[4] = {};
  wgmma_fence();
  wgmma<__half>(O, P, V(0), false);
  wgmma_commit();
  wgmma_wait<0>(O);
  for (unsigned& p : P) p = pack_f16(1.0f, 1.0f);
  if (fence) wgmma_fence();
  wgmma<__half>(other, P, V(0), false);  // BUG operand changed
  wgmma_commit();
  wgmma_wait<0>(other);
  out[me()] = O[0] + other[0];
}

// ---- tiles that are overwritten ---------------------------------------------------------------------------------------------------------

/// The warpgroup gives the tile back before or after its product is complete; another warp loads the next tile into it.
__global__ void tile_given_back(const float* in, bool late, float* out) {
  const Shared shared;
  if (me() < 128) shared.fill();
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 128);
    mbarrier_init(shared.barrier(1), 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  __syncthreads();
  if (me() >= 128) {
    mbarrier_wait(shared.barrier(0), 0);
    if (me() == 128) {
      mbarrier_arrive_expect_tx(shared.barrier(1), 2048);
      bulk_load(shared.second(), in, 2048, shared.barrier(1));  // BUG load into a tile in use
    }
    mbarrier_wait(shared.barrier(1), 0);
    return;
  }
  const auto Q = k_major<64>(shared.panel), K = k_major<64>(shared.second());
  float S[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);  // BUG product that uses the tile
  wgmma_commit();
  if (!late) mbarrier_arrive(shared.barrier(0));
  wgmma_wait<0>(S);
  if (late) mbarrier_arrive(shared.barrier(0));
  out[me()] = S[0];
}

alignas(16) std::array<float, 1024> in{};
alignas(16) std::array<float, 128> out{};

std::string product_report(const Mistakes& m) { return report(128, shared_bytes, product, m, out.data()); }

}  // namespace

TEST_CASE("zoo: wgmma") {
  CHECK(product_report({}) == "");
  CHECK(out[77] == 16.0f);
  CHECK_REPORT(product_report({.fence = false}), "wgmma without wgmma_fence(): its accumulators may have been touched",
               BUG("product"));
  CHECK_REPORT(product_report({.wait = false}), "the thread ends without having waited for its wgmma at ", BUG("product"));
  CHECK_REPORT(product_report({.wait_newest = 1}), "wgmma_wait<1> does not wait for these accumulators: the product at ",
               BUG("product"), " is of a newer group at ", BUG("wait for one group less"));
  CHECK_REPORT(product_report({.commit = false}), "wgmma_wait<0> does not wait for these accumulators: the product at ",
               BUG("product"), " may be in no group: wgmma_commit() at ", BUG("wait"));
  CHECK_REPORT(product_report({.row = 4}),
               "wgmma: an operand at byte 512 of shared memory: its tile must begin at a multiple of 1024 at ", BUG("product"));
  CHECK_REPORT(product_report({.other_k = 5}),
               "wgmma: the threads of a warpgroup ask for different products: another one came from ", BUG("product"));
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
    CHECK_REPORT(product_report({.store_in_flight = 3}), "still reads at ", BUG("store in flight"));
    CHECK_REPORT(product_report({.early_read = 3}), "thread (3,0,0): touches accumulators of the wgmma at ", BUG("product"),
                 " before it has waited for them at ", BUG("early read"));
    CHECK_REPORT(product_report({.early_write = 3}), "thread (3,0,0): touches accumulators of the wgmma at ", BUG("product"),
                 " before it has waited for them at ", BUG("early write"));
    CHECK_REPORT(product_report({.proxy_fence = false}), "wgmma reads byte ", " of dynamic shared memory, which thread ",
                 " stored to at ", BUG("store without fence"), " without fence_proxy_async() at ", BUG("product"));
  } else {
    CHECK_REPORT(product_report({.early_write = 3}), "wgmma: accumulators were written before they were waited for at ",
                 BUG("product"));
    CHECK(product_report({.early_read = 3}) == "");
    CHECK(std::isnan(out[3]) == false);  // the right number came later
  }
}

TEST_CASE("zoo: wgmma_fence after registers were touched") {
  CHECK(report(128, shared_bytes, touched_without_fence, true, out.data()) == "");
  CHECK(out[9] == 24.0f);
  CHECK_REPORT(report(128, shared_bytes, touched_without_fence, false, out.data()),
               "wgmma without wgmma_fence(): its accumulators ", BUG("touched without fence"));
}

TEST_CASE("zoo: A in registers") {
  CHECK(report(128, shared_bytes, operand_in_registers, 0, out.data()) == "");
  CHECK(out[9] == 32.0f);
  CHECK(report(128, shared_bytes, operand_in_registers, 2, out.data()) == "");
  CHECK_REPORT(report(128, shared_bytes, operand_in_registers, 1, out.data()),
               "wgmma: A in registers was changed before the product was waited for at ", BUG("operand in flight"));
  CHECK(report(128, shared_bytes, operand_changed, true, out.data()) == "");
  CHECK(out[9] == 16.0f);
  CHECK_REPORT(report(128, shared_bytes, operand_changed, false, out.data()),
               "wgmma without wgmma_fence(): A in registers has changed since its last product at ", BUG("operand changed"));
}

TEST_CASE("zoo: a tile that is overwritten while wgmma reads it") {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    set_options({.order = order, .seed = 3});
    CHECK_REPORT(report(160, shared_bytes, tile_given_back, in.data(), false, out.data()),
                 "the load overwrites byte 8192 of dynamic shared memory, which the wgmma at ",
                 BUG("product that uses the tile"), " still reads at ", BUG("load into a tile in use"));
    CHECK(report(160, shared_bytes, tile_given_back, in.data(), true, out.data()) == "");
  }
  set_options({});
}

}  // namespace flash
