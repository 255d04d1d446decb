// The kernels of the PTX wrappers: ldmatrix, mma, ex2, atomic_add4, cp.async. See primitives.cuh.
#pragma once

#include "common/machine/test/primitives.cuh"

namespace flash {
namespace {

// ---- ldmatrix: four 8 x 8 matrices of 16-bit numbers, of which number i is i -----------------------------------------------

template <int Count, bool Trans>
__global__ void ldmatrix_kernel(const unsigned*, unsigned* out) {
  __shared__ __align__(16) unsigned short matrices[32][8];
  for (int i = static_cast<int>(threadIdx.x); i < 32 * 8; i += 64) matrices[i / 8][i % 8] = static_cast<unsigned short>(i);
  __syncthreads();
  unsigned r[Count];
  // Rows in reverse order within a matrix: the address alone says which row it is. Lanes beyond 8 * Count pass some valid one.
  const int row = lane() % (8 * Count);
  const void* const address = matrices[row / 8 * 8 + 7 - row % 8];
  if constexpr (Count == 1 && !Trans) ldmatrix_x1(r, address);
  if constexpr (Count == 2 && !Trans) ldmatrix_x2(r, address);
  if constexpr (Count == 4 && !Trans) ldmatrix_x4(r, address);
  if constexpr (Count == 4 && Trans) ldmatrix_x4_trans(r, address);
  for (int m = 0; m < Count; ++m) mine(out, Count)[m] = r[m];
}

// ---- mma: inputs are small whole numbers, so that every sum is exact ----------------------------------------------------------

/// Numbers from -8 to 7.
__device__ inline float small(unsigned word) { return static_cast<float>(word % 16u) - 8.0f; }

template <bool Bf16>
__device__ unsigned pack(float low, float high) {
  if constexpr (Bf16) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
           static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
  } else {
    return __half_as_ushort(__float2half_rn(low)) | static_cast<unsigned>(__half_as_ushort(__float2half_rn(high))) << 16;
  }
}

/// D = A B + C with A [16, Depth] from word 0 of the input on, B [Depth, 8] from word 256, C [16, 8] from word 384.
template <bool Bf16, int Depth>
__global__ void mma_kernel(const unsigned* in, unsigned* out) {
  const int g = lane() / 4, t = lane() % 4;
  const auto A = [&](int row, int k) { return small(in[row * Depth + k]); };
  const auto B = [&](int k, int col) { return small(in[256 + k * 8 + col]); };
  unsigned a[Depth / 4], b[Depth / 8];
  for (int half = 0; half < Depth / 8; ++half) {
    const int k = 8 * half + 2 * t;
    a[2 * half] = pack<Bf16>(A(g, k), A(g, k + 1));
    a[2 * half + 1] = pack<Bf16>(A(g + 8, k), A(g + 8, k + 1));
    b[half] = pack<Bf16>(B(k, g), B(k + 1, g));
  }
  float c[4], d[4];
  for (int i = 0; i < 4; ++i) c[i] = small(in[384 + (g + 8 * (i / 2)) * 8 + 2 * t + i % 2]);
  if constexpr (Bf16 && Depth == 16) mma_m16n8k16_bf16(d, a, b, c);
  if constexpr (!Bf16 && Depth == 8) mma_m16n8k8_f16(d, a, b, c);
  if constexpr (!Bf16 && Depth == 16) mma_m16n8k16_f16(d, a, b, c);
  for (int i = 0; i < 4; ++i) mine(out, 4)[i] = __float_as_uint(d[i]);
}

// ---- ex2: only what every implementation shares, to about two units in the last place --------------------------------------------

__global__ void exp2_approx_kernel(const unsigned* in, unsigned* out) {
  unsigned* const o = mine(out, 6);
  const float x = static_cast<float>(static_cast<int>(in[threadIdx.x])) * 0x1p-31f * 125.0f;  // -125 to 125
  const float step = static_cast<float>(threadIdx.x);
  o[0] = fabsf(exp2_approx(x) - exp2f(x)) <= 4e-7f * exp2f(x);
  o[1] = __float_as_uint(exp2_approx(-126.5f - step));  // below the smallest normal number
  o[2] = __float_as_uint(exp2_approx(-INFINITY));
  o[3] = __float_as_uint(exp2_approx(INFINITY));
  o[4] = __float_as_uint(exp2_approx(128.5f + step));
  const float nothing = exp2_approx(__uint_as_float(0x7fc00000u));
  o[5] = nothing != nothing;
}

// ---- tanh: only what every implementation shares, to 2^-11 -------------------------------------------------------------------------

__global__ void tanh_approx_kernel(const unsigned* in, unsigned* out) {
  unsigned* const o = mine(out, 6);
  const float x = static_cast<float>(static_cast<int>(in[threadIdx.x])) * 0x1p-31f * 4.0f;  // -4 to 4
  const auto is_close = [](float at) { return fabsf(tanh_approx(at) - tanhf(at)) <= 0x1.04p-11f * fabsf(tanhf(at)); };
  o[0] = is_close(x);
  o[1] = is_close(1e-4f * x);
  o[2] = __float_as_uint(tanh_approx(INFINITY));
  o[3] = __float_as_uint(tanh_approx(-40.0f));
  o[4] = tanh_approx(0.0f) == 0.0f;
  const float nothing = tanh_approx(__uint_as_float(0x7fc00000u));
  o[5] = nothing != nothing;
}

// ---- atomic_add4: small whole numbers, so that no order of the sums matters -------------------------------------------------------

/// Row t of `out`, four numbers, gets something from thread t; rows 0 to 15 from four threads more.
__global__ void atomic_add4_kernel(const unsigned* in, unsigned* out) {
  const int t = static_cast<int>(threadIdx.x);
  const Matrix<float> rows{reinterpret_cast<float*>(out), 64, 4, 4};
  rows.as<float4>(t, 0) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
  __syncthreads();  // write after write: others add to what this thread has set
  const float x = small(in[t]), y = small(in[t + 64]);
  atomic_add4(rows.address(t, 0), make_float4(x, y, x + y, x - y));
  atomic_add4(rows.address(t / 4, 0), make_float4(y, 1.0f, -x, 0.5f));
}

// ---- cp.async ----------------------------------------------------------------------------------------------------------------

/// Copies of every size, with and without zero fill, in three groups of which the last is waited for last.
__global__ void cp_async_kernel(const unsigned* in, unsigned* out) {
  __shared__ __align__(16) unsigned tile[64][12];
  unsigned* const row = tile[threadIdx.x];
  const unsigned* const from = in + 8 * static_cast<int>(threadIdx.x);
  cp_async<16>(row, from);
  cp_async_commit();
  cp_async<8>(row + 4, from + 4);
  cp_async<4>(row + 6, from + 6);
  cp_async_commit();
  cp_async_zfill<4>(row + 7, from + 7, static_cast<int>(threadIdx.x % 2u) * 4);  // nothing in even threads
  cp_async_zfill<16>(row + 8, from, static_cast<int>(threadIdx.x % 5u) * 4);
  cp_async_commit();
  cp_async_wait<1>();
  unsigned early = 0;
  for (int i = 0; i < 7; ++i) early += row[i];
  cp_async_wait_all();
  __syncthreads();  // also to read the neighbour's
  unsigned* const o = mine(out, 13);
  for (int i = 0; i < 12; ++i) o[i] = tile[(threadIdx.x + 1u) % 64u][i];
  o[12] = early;
}

}  // namespace
}  // namespace flash
