// The kernels of hopper.cuh. See primitives.cuh.
#pragma once

#include "common/machine/hopper.cuh"
#include "common/machine/test/tensor_primitives.cuh"

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

/// A panel, or more, and behind it what else a kernel needs.
template <int Panels, int Rows>
struct Shared {
  unsigned* words = dynamic_shared<unsigned>(bytes / 4);
  static constexpr int panel_words = Rows * 32, bytes = Panels * Rows * 128 + 64;
  __device__ unsigned* panel(int i) const { return words + i * panel_words; }
  __device__ Mbarrier& barrier(int i) const { return reinterpret_cast<Mbarrier*>(words + Panels * panel_words)[i]; }
};

// ---- TMA -----------------------------------------------------------------------------------------------------------------------

/// Two boxes of [1, 2, 12, 72], both beyond its edges, as they lie in shared memory.
__global__ void tma_load_kernel(const __grid_constant__ TensorMap map, unsigned* out) {
  const Shared<2, 16> shared;
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), 2 * 16 * 128);
    tma_load(shared.panel(0), map, shared.barrier(0), 16, 3, 1, 0);
    tma_load(shared.panel(1), map, shared.barrier(0), -8, -2, 0, 0);
  }
  mbarrier_wait(shared.barrier(0), 0);
  for (int i = 0; i < 16; ++i) mine(out, 16)[i] = shared.words[16 * me() + i];
}

/// A box of 32 rows and 64 columns into [1, 1, 16, 40]: what lies beyond is left out.
__global__ void tma_store_kernel(const unsigned* in, const __grid_constant__ TensorMap map) {
  const Shared<1, 32> shared;
  for (int i = 0; i < 16; ++i) shared.words[64 * i + me()] = in[64 * i + me()];
  fence_proxy_async();
  __syncthreads();
  if (me() == 0) {
    tma_store(map, shared.words, 0, 0, 0, 0);
    bulk_commit();
    bulk_wait_read<0>();
  }
}

/// 1024 bytes: loaded, stored, and added twice.
__global__ void bulk_kernel(const unsigned* in, unsigned* out) {
  const Shared<2, 8> shared;
  float* const summands = reinterpret_cast<float*>(shared.panel(1));
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (me() == 0) {
    mbarrier_arrive_expect_tx(shared.barrier(0), 1024);
    bulk_load(shared.words, in, 512, shared.barrier(0));
    bulk_load(shared.words + 128, in + 512, 512, shared.barrier(0));
  }
  mbarrier_wait(shared.barrier(0), 0);
  float numbers[4];
  for (int i = 0; i < 4; ++i) numbers[i] = small(shared.words[4 * me() + i]);
  for (int i = 0; i < 4; ++i) summands[4 * me() + i] = numbers[i];
  fence_proxy_async();
  __syncthreads();
  if (me() == 0) {
    bulk_store(out, summands, 1024);
    bulk_commit();
    bulk_wait<0>();
    bulk_reduce_add(reinterpret_cast<float*>(out), summands, 1024);
    bulk_reduce_add(reinterpret_cast<float*>(out), summands, 512);
    bulk_commit();
    bulk_wait<0>();
  }
}

// ---- mbarriers, named barriers, warps ------------------------------------------------------------------------------------------------

/// Warp 0 passes 12 rows of 32 words to warp 1 through a ring of two.
__global__ void mbarrier_ring_kernel(const unsigned* in, unsigned* out) {
  const Shared<1, 8> shared;  // barriers 0, 1: a row is there; 2, 3: it may be overwritten
  if (me() == 0) {
    for (int i = 0; i < 4; ++i) mbarrier_init(shared.barrier(i), 32);
    fence_mbarrier_init();
  }
  __syncthreads();
  unsigned sum = 0;
  for (int use = 0; use < 12; ++use) {
    const int stage = use % 2, parity = use / 2 % 2;
    unsigned& slot = shared.words[32 * stage + lane()];
    if (me() < 32) {
      mbarrier_wait(shared.barrier(2 + stage), parity ^ 1);
      slot = in[32 * use + lane()];
      mbarrier_arrive(shared.barrier(stage));
    } else {
      mbarrier_wait(shared.barrier(stage), parity);
      sum = 3u * sum + shared.words[32 * stage + 31 - lane()];
      mbarrier_arrive(shared.barrier(2 + stage));
    }
  }
  mine(out, 1)[0] = sum;
}

/// The same by named barriers: 1, 2 say that a row is there, 3, 4 that it may be overwritten.
__global__ void named_barrier_kernel(const unsigned* in, unsigned* out) {
  const Shared<1, 8> shared;
  unsigned sum = 0;
  for (int use = 0; use < 12; ++use) {
    const int stage = use % 2;
    if (me() < 32) {
      if (use >= 2) named_barrier_sync(3 + stage, 64);
      shared.words[32 * stage + lane()] = in[32 * use + lane()];
      named_barrier_arrive(1 + stage, 64);
    } else {
      named_barrier_sync(1 + stage, 64);
      sum = 3u * sum + shared.words[32 * stage + 31 - lane()];
      if (use < 10) named_barrier_arrive(3 + stage, 64);
    }
  }
  mine(out, 1)[0] = sum;
}

/// Each warp stores four matrices to rows in reverse order; then everybody takes 4 words in turn.
__global__ void stmatrix_kernel(const unsigned* in, unsigned* out) {
  const Shared<1, 8> shared;
  const unsigned r[4] = {in[me()], in[64 + me()], in[128 + me()], in[192 + me()]};
  unsigned* const matrices = shared.words + me() / 32 * 128;
  stmatrix_x4(matrices + 4 * (lane() / 8 * 8 + 7 - lane() % 8), r);
  __syncthreads();
  for (int i = 0; i < 4; ++i) mine(out, 4)[i] = shared.words[4 * me() + i];
}

__global__ void elect_kernel(const unsigned*, unsigned* out) {
  mine(out, 1)[0] = static_cast<unsigned>(__popc(__ballot_sync(FULL, elect_one())));
}

/// Two warpgroups take registers that the third gives.
__global__ void __launch_bounds__(384, 1) setmaxnreg_kernel(const unsigned* in, unsigned* out) {
  if (me() >= 256) {
    setmaxnreg_dec<24>();
  } else {
    setmaxnreg_inc<240>();
  }
  mine(out, 1)[0] = in[me()] + 1u;
}

}  // namespace
}  // namespace flash
