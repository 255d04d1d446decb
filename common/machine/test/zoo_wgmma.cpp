// Misuse of a warpgroup's products, beyond the hazards of zoo_async.cuh.
#include "common/machine/float16.cuh"
#include "common/machine/test/zoo.hpp"
#include "common/machine/wgmma.cuh"

#include <array>

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
    for (int i = me(); i < 2 * 4096; i += 128) panel[i] = __float2half(1.0f);
  }
};
constexpr std::size_t shared_bytes = 2 * (2 * 4096 + 128);

/// S = Q K^T of ones with depth 16, with room for a mistake.
struct Mistakes {
  int row = 0, threads = 128, other_k = -1, k = 0;
};
__global__ void product(Mistakes m, float* out) {
  const Shared shared;
  shared.fill();
  fence_proxy_async();
  __syncthreads();
  if (me() >= m.threads) return;
  const auto Q = k_major<64>(shared.panel, m.row), K = k_major<64>(shared.second());
  float S[32];
  wgmma_fence();
  wgmma<__half>(S, Q(me() == m.other_k ? 1 : 0), K(m.k), false);  // BUG product
  wgmma_commit();
  wgmma_wait<0>(S);
  out[me()] = S[1];
}

/// Two products in two groups.
__global__ void two_products(int other_lane, bool other_shape, float* out) {
  const Shared shared;
  shared.fill();
  fence_proxy_async();
  __syncthreads();
  const auto Q = k_major<64>(shared.panel), K = k_major<64>(shared.second());
  float S[32], T[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);                                                   // BUG first of two
  if (other_shape) wgmma<__half>(reinterpret_cast<float(&)[16]>(S), Q(0), K(0), false);  // BUG other shape
  wgmma_commit();
  wgmma<__half>(T, Q(1), K(1), false);
  wgmma_commit();
  if (me() == other_lane) {
    wgmma_wait<1>(S);  // BUG waits for one
  } else {
    wgmma_wait<0>(S, T);  // BUG waits for both
  }
  if (me() == other_lane) wgmma_wait<0>(T);
  out[me()] = S[0] + T[0];
}
__global__ void tile_elsewhere(const __half* tile, unsigned* out) {
  *out = k_major<64>(tile).first.low;  // BUG tile elsewhere
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

alignas(16) std::array<float, 1024> in{};
alignas(16) std::array<float, 128> out{};

std::string product_report(const Mistakes& m) { return report(128, shared_bytes, product, m, out.data()); }

}  // namespace

TEST_CASE("zoo: wgmma") {
  CHECK(product_report({}) == "");
  CHECK(out[77] == 16.0f);
  CHECK_REPORT(product_report({.row = 4}), "misaligned: ", BUG("product"));
  CHECK_REPORT(product_report({.k = 4}), "out_of_bounds: ", BUG("product"));
  CHECK_REPORT(product_report({.other_k = 5}), "warpgroup: ", BUG("product"));
  CHECK_REPORT(product_report({.threads = 96}), "warpgroup: ", BUG("product"));
  CHECK_REPORT(report(64, shared_bytes, product, Mistakes{}, out.data()), "warpgroup: ", BUG("product"));
}

TEST_CASE("zoo: two products of a warpgroup") {
  CHECK(report(128, shared_bytes, two_products, -1, false, out.data()) == "");
  CHECK(out[99] == 32.0f);
  CHECK_REPORT(report(128, shared_bytes, two_products, 7, false, out.data()), "warpgroup: ");
  CHECK_REPORT(report(128, shared_bytes, two_products, -1, true, out.data()), "bad_argument: ", BUG("first of two"),
               BUG("other shape"));
  unsigned low = 0;
  CHECK_REPORT(report(1, shared_bytes, tile_elsewhere, reinterpret_cast<const __half*>(in.data()), &low),
               "out_of_bounds: ", BUG("tile elsewhere"));
}

TEST_CASE("zoo: A in registers") {
  CHECK(report(128, shared_bytes, operand_changed, true, out.data()) == "");
  CHECK(out[9] == 16.0f);
  CHECK_REPORT(report(128, shared_bytes, operand_changed, false, out.data()), "missing_fence: ", BUG("operand changed"));
}

}  // namespace flash
