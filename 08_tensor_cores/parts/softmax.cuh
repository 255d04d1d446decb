// 08 Tensor cores, forward from step 5 on, and Hopper forward: the softmax of rows in registers. c
// of the equations is scale_log2 in the code.
#pragma once

#include "common/machine/ptx.cuh"
#include "common/parts/rows.cuh"

namespace flash::tensor_cores {
namespace {

/// (6.2)  update_max() of rows.cuh, by 2^(c x).
template <int N>
__device__ Rows<N> update_max(Rows<N>& m, const Rows<N>& largest, float scale_log2) {
  return flash::update_max(m, largest, [=](float x) { return exp2_approx(scale_log2 * x); });
}

/// Up to this |c m|, rounding c m changes the weight of a tile by at most 0.04 %, less than
/// rounding P does (0.05 % in fp16).
constexpr float LARGE_EXPONENT = 0x1p14f;

/// (8.2)  S becomes P = 2^(c S - c m), or 2^(c (S - m)) if c m is large or overflows. Each lane
/// decides for its own rows, without a vote: the branch needs no other lane, and the next product
/// (.sync) waits for all lanes of the warp.
template <class Scores, int N>
__device__ void exponentiate(Scores& S, Rows<N> m, float scale_log2) {
  bool subtract_first = false;
  m.each([&](float& x, int) {
    x = zero_if_empty(x);
    subtract_first = subtract_first || fabsf(scale_log2 * x) > LARGE_EXPONENT;
  });
  if (subtract_first) S.each([&](float& s, int r) { s -= m[r]; });
  m.each([&](float& x, int) { x = subtract_first ? 0.0f : scale_log2 * x; });
  S.each([&](float& s, int r) { s = exp2_approx(scale_log2 * s - m[r]); });
}

// ---- For the lazy steps, of which forward step 10 is the first ---------------------------------

/// m may stay while a lane's share of a row of P sums to at most this. No element of P is larger
/// then, far below fp16's 65504.
constexpr float MAX_LANE_SUM = 1024.0f;

/// Whether `holds` is true in all rows of the warp.
template <int N, class F>
__device__ bool in_all_rows(Rows<N> rows, F holds) {
  bool all = true;
  rows.each([&](float x, int) { all = all && holds(x); });
  return __all_sync(ALL_LANES, all);
}

/// S becomes P with an m that may be too small. True, and l takes the sums of P, if all rows of the
/// warp have sums that fit.
template <class Scores, int N>
__device__ bool exponentiate_if_it_fits(Scores& S, Rows<N> m, Rows<N>& l, float scale_log2) {
  m.each([&](float& x, int) { x *= scale_log2; });
  S.each([&](float& s, int r) { s = exp2_approx(scale_log2 * s - m[r]); });  // (8.2)
  const auto sum = lane_sum(S);
  // NaN passes: multiplying again would not help.
  const bool fits = in_all_rows(sum, [](float x) { return !(x > MAX_LANE_SUM); });
  if (fits) l = l + sum;  // (8.3)
  return fits;
}

}  // namespace
}  // namespace flash::tensor_cores
