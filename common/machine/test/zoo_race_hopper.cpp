// Races that Hopper's instructions leave: see zoo_race.cpp. What they order is what the correct twins rely on.
#include "common/machine/float16.cuh"
#include "common/machine/test/zoo.hpp"
#include "common/machine/test/zoo_race.hpp"
#include "common/machine/wgmma.cuh"

#include <vector>

namespace flash {
namespace {

using Memory = RaceMemory;

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

/// Two panels of 64 rows, and mbarriers.
struct Shared {
  float* numbers = dynamic_shared<float>(4096 + 64);
  __device__ Mbarrier& barrier(int i) const { return reinterpret_cast<Mbarrier*>(numbers + 4096)[i]; }
};
__device__ void start(const Shared& shared, int arrivals) {
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(shared.barrier(i), i == 0 ? arrivals : 1);
    fence_mbarrier_init();
  }
  __syncthreads();
}

/// The mbarrier is for 32 arrivals; half the writers arrive twice, the others not at all.
__global__ void wrong_arrivals(Memory* m) {
  const Shared shared;
  start(shared, 32);
  if (me() < 32) {
    shared.numbers[me()] = m->in[me()];  // BUG wrong_arrivals, write
    if (me() < 16) mbarrier_arrive(shared.barrier(0));
    if (me() < 16) mbarrier_arrive(shared.barrier(0));
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    m->out[me()] = shared.numbers[me() - 32];  // BUG wrong_arrivals, read
  }
}
__global__ void wrong_arrivals_right(Memory* m) {
  const Shared shared;
  start(shared, 32);
  if (me() < 32) {
    shared.numbers[me()] = m->in[me()];
    mbarrier_arrive(shared.barrier(0));
  } else {
    mbarrier_wait(shared.barrier(0), 0);
    m->out[me()] = shared.numbers[me() - 32];
  }
}

/// bar.arrive before the store that it is to announce.
__global__ void announced_too_early(Memory* m) {
  const Shared shared;
  if (me() < 32) {
    named_barrier_arrive(1, 64);
    shared.numbers[me()] = m->in[me()];  // BUG announced_too_early, write
  } else {
    named_barrier_sync(1, 64);
    m->out[me()] = shared.numbers[me() - 32];  // BUG announced_too_early, read
  }
}
__global__ void announced_too_early_right(Memory* m) {
  const Shared shared;
  if (me() < 32) {
    shared.numbers[me()] = m->in[me()];
    named_barrier_arrive(1, 64);
  } else {
    named_barrier_sync(1, 64);
    m->out[me()] = shared.numbers[me() - 32];
  }
}

/// A warp reads a row that was loaded; its last lane gives the place back, and the next row is loaded into it.
__device__ void two_rows(Memory* m, bool meet) {
  const Shared shared;
  start(shared, 1);
  if (me() >= 32) {
    if (me() > 32) return;
    for (int row = 0; row < 2; ++row) {
      if (row == 1) mbarrier_wait(shared.barrier(0), 0);
      mbarrier_arrive_expect_tx(shared.barrier(1), 128);
      bulk_load(shared.numbers, m->in + 32 * row, 128, shared.barrier(1));  // BUG given_back_by_one_lane, write
    }
    return;
  }
  for (int row = 0; row < 2; ++row) {
    mbarrier_wait(shared.barrier(1), row);
    m->out[32 * row + me()] = shared.numbers[31 - me()];  // BUG given_back_by_one_lane, read
    if (meet) __syncwarp();
    if (row == 0 && me() == 31) mbarrier_arrive(shared.barrier(0));
  }
}
__global__ void given_back_by_one_lane(Memory* m) { two_rows(m, false); }
__global__ void given_back_by_one_lane_right(Memory* m) { two_rows(m, true); }

/// One thread fills the tiles. Its proxy fence alone orders no threads.
__device__ void product(Memory* m, bool barrier) {
  const Shared shared;
  start(shared, 1);
  __half* const tiles = reinterpret_cast<__half*>(shared.numbers);
  const __half one = __float2half(1.0f);
  for (int i = 0; me() == 127 && i < 2 * 4096; ++i) tiles[i] = one;  // BUG product_without_barrier, write
  fence_proxy_async();
  if (barrier) named_barrier_sync(1, 128);
  float S[32];
  const auto Q = k_major<64>(tiles), K = k_major<64>(tiles + 4096);
  wgmma_fence();
  wgmma<__half>(S, Q(0), K(0), false);  // BUG product_without_barrier, read
  wgmma_commit();
  wgmma_wait<0>(S);
  m->out[me()] = S[0];
}
__global__ void product_without_barrier(Memory* m) { product(m, false); }
__global__ void product_without_barrier_right(Memory* m) { product(m, true); }

}  // namespace

std::vector<RaceEntry> hopper_race_entries() {
  const auto entry = [](const char* name, bool is_bug, void (*kernel)(Memory*), unsigned threads) {
    return RaceEntry{{name, is_bug, "zoo_race_hopper.cpp"}, kernel, 1, threads};
  };
  return {
      entry("wrong_arrivals", true, wrong_arrivals, 64),
      entry("wrong_arrivals_right", false, wrong_arrivals_right, 64),
      entry("announced_too_early", true, announced_too_early, 64),
      entry("announced_too_early_right", false, announced_too_early_right, 64),
      entry("given_back_by_one_lane", true, given_back_by_one_lane, 64),
      entry("given_back_by_one_lane_right", false, given_back_by_one_lane_right, 64),
      entry("product_without_barrier", true, product_without_barrier, 128),
      entry("product_without_barrier_right", false, product_without_barrier_right, 128),
  };
}

}  // namespace flash
