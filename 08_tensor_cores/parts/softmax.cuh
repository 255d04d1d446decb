// 08 Tensor cores: the softmax of rows in registers, as forward step 4 introduces it, for steps 5 to 7; step 8 has its own.
#pragma once

#include "common/device/softmax.cuh"

namespace flash::tensor_cores {
namespace {

/// Whether rounding c m would change weights by more than 2.2 % in one of the lane's rows, or c m overflows, or no key was
/// visible yet.
template <int N>
__device__ bool is_large(Rows<N> m, float c) {
  bool large = false;
  m.each([&](float& x, int) { large = large || fabsf(c * x) > 0x1p20f; });
  return large;
}

/// (6.2)  m = max(m, largest). Returns alpha, the factor that rescales sums over the old P: 2^(c m_old - c m), of products that
/// are rounded as in P, so that their errors cancel; or 2^(c (m_old - m)) where P is 2^(c (S - m)).
template <int N>
__device__ Rows<N> raise(Rows<N>& m, const Rows<N>& largest, float c, bool subtract_first) {
  Rows<N> alpha = m;
  m.each([&](float& x, int r) { x = fmaxf(x, largest[r]); });
  subtract_first = subtract_first || is_large(m, c);
  return alpha.each([&](float& x, int r) {  // __fmul_rn(): a fused multiply-add would not round the product
    x = exp2_approx(subtract_first ? c * (x - finite(m[r])) : __fmul_rn(c, x) - __fmul_rn(c, m[r]));
  });
}

/// (8.2)  S becomes P = 2^(c S - c m), or 2^(c (S - m)) if asked to subtract first, or if c m is large.
template <class Scores, int N>
__device__ void exponentiate(Scores& S, Rows<N> m, float c, bool subtract_first) {
  subtract_first = subtract_first || is_large(m, c);
  if (subtract_first) S.each([&](float& s, int r) { s -= finite(m[r]); });
  m.each([&](float& x, int) { x = subtract_first ? 0.0f : c * x; });
  S.each([&](float& s, int r) { s = exp2_approx(fmaf(c, s, -m[r])); });
}

}  // namespace
}  // namespace flash::tensor_cores
