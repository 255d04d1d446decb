// One small kernel for each thing that a kernel can do with its warp or block. Compiled for both backends: the CPU's results are
// compared with what the CUDA manuals say (primitives_test.cpp), a GPU's with the CPU's (primitives_gpu_test.cpp).
//
// A kernel runs as one block of 64 threads, reads any of 1024 input words and writes `words` words for each thread.
#pragma once

#include "common/machine/cuda.cuh"
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/test/primitives.hpp"

namespace flash {
namespace {

constexpr unsigned FULL = 0xffffffffu;

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }

/// This thread's output words.
__device__ inline unsigned* mine(unsigned* out, int words) { return out + static_cast<int>(threadIdx.x) * words; }

/// Each thread adds to its neighbour's word, then reads its own.
__global__ void acquire_release_kernel(const unsigned* in, unsigned* out) {
  const int me = static_cast<int>(threadIdx.x), x = static_cast<int>(in[(me + 1) % 64] % 1000u);
  int* const sums = reinterpret_cast<int*>(out);
  sums[me] = me;
  __syncthreads();
  add_release(sums + (me + 1) % 64, x);
  add_release(sums + (me + 1) % 64, -5);
  __syncthreads();
  wait_until_equal(sums + me, me + static_cast<int>(in[me] % 1000u) - 5);
  out[me] = static_cast<unsigned>(load_acquire(sums + me));
}

// ---- warp ------------------------------------------------------------------------------------------------------------------

__global__ void shuffles_kernel(const unsigned* in, unsigned* out) {
  const unsigned x = in[threadIdx.x];
  const float f = static_cast<float>(x % 1000u);
  unsigned* const o = mine(out, 8);
  o[0] = __shfl_sync(FULL, x, 5);
  o[1] = __shfl_sync(FULL, x, lane() + 3, 8);  // wraps around within 8 lanes
  o[2] = __shfl_up_sync(FULL, x, 3);
  o[3] = __shfl_up_sync(FULL, x, 1, 16);
  o[4] = __shfl_down_sync(FULL, x, 7);
  o[5] = __shfl_down_sync(FULL, x, 2, 4);
  o[6] = __shfl_xor_sync(FULL, x, 21);
  o[7] = __float_as_uint(__shfl_xor_sync(FULL, f, 5, 8));
}

__global__ void wide_shuffle_kernel(const unsigned* in, unsigned* out) {
  const double x = static_cast<double>(in[threadIdx.x]) * 4294967296.0 + in[threadIdx.x + 64];
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(__shfl_xor_sync(FULL, x, 9)));
  mine(out, 2)[0] = static_cast<unsigned>(bits);
  mine(out, 2)[1] = static_cast<unsigned>(bits >> 32);
}

__global__ void partial_masks_kernel(const unsigned* in, unsigned* out) {
  const unsigned x = in[threadIdx.x];
  unsigned result;
  if (lane() < 16) {
    result = __shfl_down_sync(0x0000ffffu, x, 4, 16);
  } else {
    result = __shfl_xor_sync(0xffff0000u, x, 8) + __ballot_sync(0xffff0000u, static_cast<int>(x & 1u));
  }
  __syncwarp();
  mine(out, 1)[0] = result;
}

__global__ void votes_kernel(const unsigned* in, unsigned* out) {
  const unsigned x = in[threadIdx.x];
  unsigned* const o = mine(out, 7);
  o[0] = __ballot_sync(FULL, static_cast<int>(x & 1u));
  o[1] = static_cast<unsigned>(__any_sync(FULL, x % 40u == 7u));
  o[2] = static_cast<unsigned>(__all_sync(FULL, x % 40u != 7u));
  o[3] = __match_any_sync(FULL, x % 5u);
  int equal = -1;
  o[4] = __match_all_sync(FULL, x % 5u, &equal);
  o[5] = static_cast<unsigned>(equal);
  o[6] = __match_all_sync(FULL, threadIdx.x / 32u, &equal) + static_cast<unsigned>(equal);
}

__global__ void reductions_kernel([[maybe_unused]] const unsigned* in, [[maybe_unused]] unsigned* out) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const unsigned x = in[threadIdx.x];
  unsigned* const o = mine(out, 8);
  o[0] = __reduce_add_sync(FULL, x);
  o[1] = __reduce_min_sync(FULL, x);
  o[2] = __reduce_max_sync(FULL, x);
  o[3] = static_cast<unsigned>(__reduce_min_sync(FULL, static_cast<int>(x)));
  o[4] = static_cast<unsigned>(__reduce_max_sync(FULL, static_cast<int>(x)));
  o[5] = __reduce_and_sync(FULL, x | 0x00ff00ffu);
  o[6] = __reduce_or_sync(FULL, x & 0x0f0f0f0fu);
  o[7] = __reduce_xor_sync(FULL, x);
#endif
}

// ---- block -----------------------------------------------------------------------------------------------------------------

__global__ void barriers_kernel(const unsigned* in, unsigned* out) {
  __shared__ unsigned reversed[64];
  const unsigned x = in[threadIdx.x];
  unsigned* const o = mine(out, 6);
  reversed[63u - threadIdx.x] = x;
  __syncthreads();
  o[0] = reversed[threadIdx.x];
  o[1] = static_cast<unsigned>(__syncthreads_count(static_cast<int>(x & 3u)));
  o[2] = static_cast<unsigned>(__syncthreads_and(static_cast<int>(threadIdx.x < 63u)));
  o[3] = static_cast<unsigned>(__syncthreads_or(static_cast<int>(threadIdx.x == 63u)));
  unsigned* const dynamic = dynamic_shared<unsigned>(64);
  dynamic[threadIdx.x] = x + 1u;
  __syncthreads();
  o[4] = dynamic[(threadIdx.x + 17u) % 64u];
  o[5] = blockDim.x * 1000000u + gridDim.x * 10000u + blockIdx.x * 100u + threadIdx.x;
}

__global__ void atomics_kernel(const unsigned* in, unsigned* out) {
  __shared__ int sum, largest, smallest, exchanged, swapped;
  __shared__ unsigned wrapped;
  __shared__ unsigned long long wide;
  __shared__ float real;
  if (threadIdx.x == 0) {
    sum = 0, largest = -1000, smallest = 1000, exchanged = 0, swapped = 0;
    wrapped = 0xfffffff0u;
    wide = 0xffffffffull;
    real = 0.5f;
  }
  __syncthreads();
  const int x = static_cast<int>(in[threadIdx.x] % 200u) - 100;
  atomicAdd(&sum, x);
  atomicMax(&largest, x);
  atomicMin(&smallest, x);
  atomicAdd(&wrapped, 1u);
  atomicAdd(&wide, 3ull);
  atomicAdd(&real, 0.25f);
  if (threadIdx.x == 40) atomicExch(&exchanged, 77);
  atomicCAS(&swapped, static_cast<int>(threadIdx.x),
            static_cast<int>(threadIdx.x) + 1);  // a chain only if the order is ascending
  __syncthreads();
  unsigned* const o = mine(out, 8);
  o[0] = static_cast<unsigned>(sum);
  o[1] = static_cast<unsigned>(largest);
  o[2] = static_cast<unsigned>(smallest);
  o[3] = wrapped;
  o[4] = static_cast<unsigned>(wide >> 32);
  o[5] = static_cast<unsigned>(wide);
  o[6] = __float_as_uint(real);
  o[7] = static_cast<unsigned>(exchanged) + (swapped >= 1 && swapped <= 64 ? 1000u : 0u);
}

// ---- arithmetic ------------------------------------------------------------------------------------------------------------

__global__ void bits_kernel(const unsigned* in, unsigned* out) {
  const unsigned x = in[threadIdx.x], y = in[threadIdx.x + 64];
  unsigned* const o = mine(out, 8);
  o[0] = static_cast<unsigned>(__popc(x));
  o[1] = static_cast<unsigned>(__clz(static_cast<int>(x >> (y % 33u == 32u ? 31u : y % 33u))));
  o[2] = static_cast<unsigned>(__ffs(static_cast<int>(x << (y % 31u))));
  o[3] = __brev(x);
  o[4] = __funnelshift_l(x, y, x % 40u);
  o[5] = __funnelshift_r(x, y, y % 40u);
  o[6] = static_cast<unsigned>(max(static_cast<int>(x), static_cast<int>(y))) ^ min(x, y);
  o[7] = __float_as_uint(max(__uint_as_float(0x7fc00000u), 3.0f)) + __float_as_uint(fminf(1.0f, 2.0f));
}

/// Conversions and arithmetic in 16 bits; the inputs' bits as floats reach every kind of number.
__global__ void float16_kernel(const unsigned* in, unsigned* out) {
  unsigned* const o = mine(out, 6);
  const float x = __uint_as_float(in[threadIdx.x]), y = static_cast<float>(in[threadIdx.x + 64] % 1000u) / 7.0f;
  const float narrow = ldexpf(y, static_cast<int>(threadIdx.x) - 40);  // for fp16 from 0 over subnormals to infinity
  o[0] = __half_as_ushort(__float2half_rn(narrow));
  o[1] = __bfloat16_as_ushort(__float2bfloat16_rn(x == x ? x : 0.0f));
  o[2] = __float_as_uint(__half2float(__float2half_rn(narrow)));
  const float2 pair = __half22float2(__floats2half2_rn(y, -narrow));
  o[3] = __float_as_uint(pair.x) ^ __float_as_uint(pair.y);
  o[4] = __half_as_ushort(__hadd(__float2half_rn(y), __float2half_rn(3.7f)));
  o[5] = __bfloat16_as_ushort(__hmul(__float2bfloat16_rn(y), __float2bfloat16_rn(3.7f)));
}

}  // namespace
}  // namespace flash
