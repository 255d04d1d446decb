// 08 Tensor cores, backward without Hopper, and kernels for any scale in ../hopper_backward/more: P
// from scores and L. Its exponents subtract log2(e) L, unless L is large.
#pragma once

#include "08_tensor_cores/parts/before_and_after.cuh"

namespace flash::tensor_cores {
namespace {

/// Beyond this |L|, rounding log2(e) L could change P by more than 2.2 %. A lower threshold would
/// gain little: just below this one, storing L in fp32 has already rounded it by up to 2^-6, which
/// is 1.6 % of P.
constexpr float LARGE_L = 0x1p19f;

/// Whether any of the tile's L is large. All lanes of the warp get the same answer.
template <int Br>
__device__ bool any_large(const QueryStats<>& stats) {
  bool large = false;
#pragma unroll
  for (int query = threadIdx.x % WARP; query < Br; query += WARP)
    large = large || fabsf(stats.L(query)) > LARGE_L;
  return __any_sync(ALL_LANES, large);
}

/// (8.11)  Transposed scores become P^T = e^(scale S^T - L). subtract_first: L is subtracted
/// before the factor log2(e).
template <class Scores>
__device__ void recompute_P(Scores& St, const QueryStats<>& stats, float scale,
                            bool subtract_first = false) {
  const float scale_log2 = scale * LOG2_E;
  // The large-L rule: L is subtracted first also if any |L| of the tile exceeds LARGE_L, since
  // log2(e) L would lose precision, or overflow.
  if (subtract_first || any_large<Scores::WIDTH>(stats)) {
    St.each_at([&](float& s, int, int query) {
      s = exp2_approx(LOG2_E * fmaf(scale, s, -stats.L(query)));
    });
  } else {
    St.each_at([&](float& s, int, int query) {
      s = exp2_approx(fmaf(scale_log2, s, -LOG2_E * stats.L(query)));
    });
  }
}

/// Multiplies block (i, k) of C, 16 x 16, by the elements that a left operand's four registers hold
/// (InRegisters).
template <class T, int RowFragments, int ColFragments>
__device__ void multiply_block(Accumulators<RowFragments, ColFragments>& C, int i, int k,
                               const uint4& block) {
  const unsigned pairs[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
  for (int reg = 0; reg < 4; ++reg) {
    const float2 factors = unpack<T>(pairs[reg]);
    float* const pair = &C.elements[i][2 * k + reg / 2][2 * (reg % 2)];
    pair[0] *= factors.x;
    pair[1] *= factors.y;
  }
}

}  // namespace
}  // namespace flash::tensor_cores
