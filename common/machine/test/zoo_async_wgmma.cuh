// Products of a warpgroup: tiles, registers and groups that are in flight.
#pragma once

#include "common/machine/test/zoo_async.cuh"

namespace flash {
namespace {

/// The first `tiles` tiles are ones, ready for wgmma.
__device__ inline void fill_tiles(const Shared& shared, int tiles, bool fence = true) {
  for (int i = me(); i < tiles * 4096; i += static_cast<int>(blockDim.x)) shared.tile(0)[i] = __float2half(1.0f);
  if (fence) fence_proxy_async();
  __syncthreads();
}
__device__ inline void leave(Memory* m, float x) { m->out[me()] = __float_as_uint(x); }

enum class Product {
  right,
  tiles_unfenced,
  tile_not_landed,
  read_early,
  not_committed,
  accumulators_unfenced,
  tile_overwritten
};

/// The TMA loads the first box of K, and one thread overwrites the tile in the end.
template <Product mistake>
__global__ void one_product(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared);
  fill_tiles(shared, 2, mistake != Product::tiles_unfenced);
  if (me() == 0 && mistake != Product::tiles_unfenced) {
    mbarrier_arrive_expect_tx(shared.barrier(0), slot_bytes);
    tma_load(shared.tile(1), map, shared.barrier(0), 0, 0, 0, 0);
  }
  if (mistake != Product::tiles_unfenced && mistake != Product::tile_not_landed) mbarrier_wait(shared.barrier(0), 0);
  __syncthreads();
  const auto Q = k_major<64>(shared.tile(0)), K = k_major<64>(shared.tile(1));
  float S[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);  // BUG tiles_unfenced | tile_not_landed
  if (mistake != Product::not_committed) wgmma_commit();
  if (mistake == Product::tile_overwritten && me() == 0) shared.tile(1)[0] = __float2half(2.0f);  // BUG tile_overwritten
  if (mistake != Product::read_early) wgmma_wait<0>(S);                                           // BUG product_not_committed
  leave(m, S[0]);                                                                                 // BUG accumulators_read_early
  for (float& x : S) x *= 0.5f;
  if (mistake != Product::accumulators_unfenced) wgmma_fence();
  wgmma<__half>(S, Q(1), K(1), true);  // BUG accumulators_unfenced
  wgmma_commit();
  wgmma_wait<0>(S);
  __syncthreads();
  if (me() == 0) shared.tile(1)[0] = __float2half(2.0f);
  leave(m, S[0]);
}

/// Two groups; the accumulators of the second are read after a wait for all but one.
template <bool wrong>
__global__ void product_group_too_new(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_tiles(shared, 2);
  const auto Q = k_major<64>(shared.tile(0)), K = k_major<64>(shared.tile(1));
  float S[32], T[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);
  wgmma_commit();
  wgmma_fence();
  wgmma<__half>(T, Q(1), K(1), false);
  wgmma_commit();
  if (wrong) {
    wgmma_wait<1>(T);  // BUG product_group_too_new
    wgmma_wait<0>(S, T);
  } else {
    wgmma_wait<1>(S);
    wgmma_wait<0>(T);
  }
  leave(m, S[0] + T[0]);
}

template <bool wrong>
__global__ void operand_in_registers_overwritten(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  fill_tiles(shared, 1);
  const auto V = mn_major<64>(shared.tile(0));
  const unsigned one = pack_f16(1.0f, 1.0f);
  unsigned P[4] = {one, one, one, one};
  float O[32] = {};
  wgmma_fence();
  wgmma<__half>(O, P, V(0), true);  // BUG operand_in_registers_overwritten
  wgmma_commit();
  if (!wrong) wgmma_wait<0>(O);
  for (unsigned& p : P) p = 0;
  wgmma_wait<0>(O);
  wgmma_fence();
  wgmma<__half>(O, P, V(1), true);
  wgmma_commit();
  wgmma_wait<0>(O);
  leave(m, O[0]);
}

/// Two products of two groups with a tile of K each. Complete is one; a load replaces the tile of the other.
template <bool wrong>
__global__ void tile_of_newest_group_refilled(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  start(shared, 128);
  fill_tiles(shared, 3);
  if (me() >= 128) {
    mbarrier_wait(shared.barrier(0), 0);
    if (lane() == 0) {
      mbarrier_arrive_expect_tx(shared.barrier(1), slot_bytes);
      tma_load(shared.tile(wrong ? 2 : 1), map, shared.barrier(1), 0, 0, 0, 0);  // BUG tile_of_newest_group_refilled
    }
    mbarrier_wait(shared.barrier(1), 0);
    return;
  }
  const auto Q = k_major<64>(shared.tile(0)), K = k_major<64>(shared.tile(1)), next = k_major<64>(shared.tile(2));
  float S[32], T[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);
  wgmma_commit();
  wgmma_fence();
  wgmma<__half>(T, Q(0), next(0), false);
  wgmma_commit();
  wgmma_wait<1>(S);
  mbarrier_arrive(shared.barrier(0));
  wgmma_wait<0>(T);
  leave(m, S[0] + T[0]);
}

/// A loop that leaves one product in flight needs three tiles: used, loading, and still read. With two the load hits the product.
template <bool wrong>
__global__ void ring_without_slack(Memory* m, const __grid_constant__ TensorMap map) {
  const Shared shared;
  constexpr int tiles = wrong ? 2 : 3;
  start(shared);
  fill_tiles(shared, 3);
  const auto load = [&](int i) {
    if (me() != 0) return;
    mbarrier_arrive_expect_tx(shared.barrier(i % tiles), slot_bytes);
    tma_load(shared.tile(i % tiles), map, shared.barrier(i % tiles), 0, 8 * i, 0, 0);  // BUG ring_without_slack
  };
  float S[32] = {};
  load(0);
  for (int i = 0; i < 6; ++i) {
    if (i < 5) load(i + 1);
    mbarrier_wait(shared.barrier(i % tiles), i / tiles % 2);
    const auto K = k_major<64>(shared.tile(i % tiles));
    wgmma_fence();
    wgmma<__half>(S, K(0), K(0), true);
    wgmma_commit();
    wgmma_wait<1>();
    __syncthreads();  // the oldest product is complete in every warp
  }
  wgmma_wait<0>(S);
  leave(m, S[0]);
}

/// Two warpgroups share K. The first to finish stages its output there.
template <bool wrong>
__global__ void output_over_shared_tile(Memory* m, const __grid_constant__ TensorMap) {
  const Shared shared;
  start(shared);
  fill_tiles(shared, 2);
  const auto Q = k_major<64>(shared.tile(0)), K = k_major<64>(shared.tile(1));
  float S[32];
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);  // BUG output_over_shared_tile
  wgmma_commit();
  wgmma_wait<0>(S);
  if (!wrong) __syncthreads();
  if (me() < 128) shared.tile(1)[me()] = __float2half(S[0]);
  leave(m, S[0]);
}

std::vector<AsyncCase> wgmma_cases() {
#define PRODUCT(name, mistake, says) ASYNC_CASE(name, one_product, Product::mistake, Product::right, 128, says)
  return {
      PRODUCT("tiles_unfenced", tiles_unfenced, "without fence_proxy_async()"),
      PRODUCT("tile_not_landed", tile_not_landed, " has landed"),
      PRODUCT("accumulators_read_early", read_early, "touches accumulators"),
      PRODUCT("product_not_committed", not_committed, "wgmma_commit()"),
      PRODUCT("accumulators_unfenced", accumulators_unfenced, "wgmma without wgmma_fence()"),
      PRODUCT("tile_overwritten", tile_overwritten, "still reads"),
      ASYNC_TWINS(product_group_too_new, 128, "newer group"),
      ASYNC_TWINS(operand_in_registers_overwritten, 128, "A in registers was changed"),
      ASYNC_TWINS(tile_of_newest_group_refilled, 160, "still reads"),
      ASYNC_TWINS(ring_without_slack, 128, "still reads"),
      ASYNC_TWINS(output_over_shared_tile, 256, "the same shared memory"),
  };
#undef PRODUCT
}

}  // namespace
}  // namespace flash
