// The kernels of wgmma.cuh. See primitives.cuh.
#pragma once

#include "common/machine/isa/fragments.hpp"
#include "common/machine/test/hopper_primitives.cuh"
#include "common/machine/wgmma.cuh"

namespace flash {
namespace {

// ---- wgmma: D [64, N] = A B + A B of depth 64, of small whole numbers ------------------------------------------------------------------

template <class T>
__device__ unsigned short bits16(float x) {
  if constexpr (std::is_same_v<T, __half>) return __half_as_ushort(__float2half_rn(x));
  if constexpr (!std::is_same_v<T, __half>) return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return 0;
}

/// Element (line, k) of A, B is small(in[37 line + 11 k]), of B from word 500 on.
template <class T, int N, Major A, Major B, bool FromRegisters>
__global__ void __launch_bounds__(128, 1) wgmma_kernel(const unsigned* in, unsigned* out) {
  const Shared<4, 64> shared;  // one for A, up to two for B
  const auto element = [&](int first, int line, int k) { return bits16<T>(small(in[(first + 37 * line + 11 * k) % 1024])); };
  const auto fill = [&](unsigned* tile, Major major, int lines, int first) {
    for (int i = me(); i < lines * 64; i += 128) {
      const int line = i / 64, k = i % 64, row = major == Major::k ? line : k, col = major == Major::k ? k : line;
      const int rows = major == Major::k ? lines : 64;
      reinterpret_cast<unsigned short*>(tile)[col / 64 * rows * 64 + row * 64 + swizzled_col(64, row, col % 64)] =
          element(first, line, k);
    }
  };
  fill(shared.panel(0), A, 64, 0);
  fill(shared.panel(1), B, N, 500);
  fence_proxy_async();
  __syncthreads();
  unsigned a[4][4];
  for (int kk = 0; kk < 4; ++kk) {
    for (int r = 0; r < 4; ++r) {
      const int row = me() / 32 * 16 + fragment::a_row(lane(), r), col = 16 * kk + fragment::a_col(lane(), r);
      a[kk][r] = element(0, row, col) | static_cast<unsigned>(element(0, row, col + 1)) << 16;
    }
  }
  float D[N / 2], E[N / 2];
  const auto product = [&](float(&C)[N / 2]) {
    const auto right = [&] {
      if constexpr (B == Major::k) return k_major<N>(shared.panel(1));
      if constexpr (B != Major::k) return mn_major<64>(shared.panel(1));
    }();
    const auto left = [&] {
      if constexpr (A == Major::k) return k_major<64>(shared.panel(0));
      if constexpr (A != Major::k) return mn_major<64>(shared.panel(0));
    }();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) {
      if constexpr (FromRegisters) wgmma<T>(C, a[kk], right(kk), kk > 0);
      if constexpr (!FromRegisters) wgmma<T>(C, left(kk), right(kk), kk > 0);
    }
    wgmma_commit();
  };
  wgmma_fence();
  product(D);
  wgmma_fence();
  product(E);
  wgmma_wait<1>(D);
  for (float& x : D) x *= 2.0f;
  wgmma_wait<0>(E);
  for (int i = 0; i < N / 2; ++i) mine(out, N / 2)[i] = __float_as_uint(D[i] + E[i]);
}

// ---- All of it: S = Q K^T with Q [64, 64] and K [150, 64]; a producer warp, and a ring of two tiles of K ------------------------------------

constexpr int ring_keys = 150, ring_tiles = 3, ring_Q = 128 * 96,
              ring_K = ring_Q + 64 * 32;  // where they lie in the output, in words

/// Small numbers in fp16 as Q and K.
__global__ void ring_inputs_kernel(const unsigned* in, unsigned* out) {
  for (int i = me(); i < (64 + ring_keys) * 32; i += 160)
    out[ring_Q + i] = pack_f16(small(in[2 * i % 1024]), small(in[(2 * i + 1) % 1024]));
  for (int i = ring_K + ring_keys * 32 + me(); i < 160 * 120; i += 160) out[i] = 0;
}

__global__ void __launch_bounds__(160, 1)
    ring_kernel(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map, unsigned* out) {
  const Shared<3, 64> shared;
  Mbarrier& full_Q = shared.barrier(0);
  const auto full_K = [&](int stage) -> Mbarrier& { return shared.barrier(1 + stage); };
  const auto empty_K = [&](int stage) -> Mbarrier& { return shared.barrier(3 + stage); };
  if (me() == 0) {
    mbarrier_init(full_Q, 1);
    for (int stage = 0; stage < 2; ++stage) {
      mbarrier_init(full_K(stage), 1);
      mbarrier_init(empty_K(stage), 4);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (me() >= 128) {
    if (!elect_one()) return;
    mbarrier_arrive_expect_tx(full_Q, 64 * 128);
    tma_load(shared.panel(2), Q_map, full_Q, 0, 0, 0, 0);
    for (int tile = 0; tile < ring_tiles; ++tile) {
      const int stage = tile % 2, parity = tile / 2 % 2;
      mbarrier_wait(empty_K(stage), parity ^ 1);
      mbarrier_arrive_expect_tx(full_K(stage), 64 * 128);
      tma_load(shared.panel(stage), K_map, full_K(stage), 0, 64 * tile, 0, 0);
    }
    return;
  }
  const auto Q = k_major<64>(shared.panel(2));
  mbarrier_wait(full_Q, 0);
  for (int tile = 0; tile < ring_tiles; ++tile) {
    const int stage = tile % 2, parity = tile / 2 % 2;
    const auto K = k_major<64>(shared.panel(stage));
    float S[32];
    mbarrier_wait(full_K(stage), parity);
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) wgmma<__half>(S, Q(kk), K(kk), kk > 0);
    wgmma_commit();
    wgmma_wait<0>(S);
    if (lane() == 0) mbarrier_arrive(empty_K(stage));
    for (int i = 0; i < 32; ++i) out[(me() * ring_tiles + tile) * 32 + i] = __float_as_uint(S[i]);
  }
}

}  // namespace
}  // namespace flash
