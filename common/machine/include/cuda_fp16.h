// fp16, global as in CUDA. What both 16-bit formats have is written once for both.
#pragma once

#include <cuda_runtime.h>

#include "common/machine/cpu/float16.hpp"

using flash::__float22half2_rn, flash::__float2half, flash::__float2half2_rn, flash::__float2half_rn, flash::__floats2half2_rn, flash::__half;
using flash::__half2, flash::__half22float2, flash::__half2float, flash::__half2half2, flash::__half_as_ushort, flash::__halves2half2, flash::half;
using flash::half2, flash::__ushort_as_half;
using flash::__hadd, flash::__hadd2, flash::__hdiv, flash::__high2float, flash::__hisnan, flash::__hmax, flash::__hmin, flash::__hmul, flash::__hmul2;
using flash::__hneg, flash::__hsub, flash::__hsub2, flash::__low2float;
typedef __half nv_half;
typedef __half2 nv_half2;
typedef unsigned short __half_raw;

namespace flash {
inline namespace simt {

template <class F>
using Two16 = Pair16<Float16<F>>;
#define FLASH_EACH(name, operation)                                                          \
  template <class F>                                                                         \
  Two16<F> operator operation(Two16<F> a, Two16<F> b) {                                      \
    return {a.x operation b.x, a.y operation b.y};                                           \
  }                                                                                          \
  template <class F>                                                                         \
  Two16<F>& operator operation##=(Two16<F>& a, Two16<F> b) {                                 \
    return a = a operation b;                                                                \
  }
FLASH_EACH(add, +)
FLASH_EACH(sub, -)
FLASH_EACH(mul, *)
FLASH_EACH(div, /)
#undef FLASH_EACH
template <class F>
Two16<F> operator-(Two16<F> a) {
  return {-a.x, -a.y};
}
template <class F>
bool operator==(Two16<F> a, Two16<F> b) {
  return a.x == b.x && a.y == b.y;
}
template <class F>
Float16<F>& operator/=(Float16<F>& a, std::type_identity_t<Float16<F>> b) {
  return a = a / b;
}
// Between a 16-bit number and another type: C++ would not know which to convert.
#define FLASH_MIXED(operation)                                                                              \
  template <class F, class T>                                                                               \
  requires std::is_arithmetic_v<T>                                                                          \
  auto operator operation(Float16<F> a, T b) { return float(a) operation static_cast<float>(b); }           \
  template <class F, class T>                                                                               \
  requires std::is_arithmetic_v<T>                                                                          \
  auto operator operation(T a, Float16<F> b) { return static_cast<float>(a) operation float(b); }
FLASH_MIXED(+)
FLASH_MIXED(-)
FLASH_MIXED(*)
FLASH_MIXED(/)
FLASH_MIXED(==)
FLASH_MIXED(<)
FLASH_MIXED(>)
FLASH_MIXED(<=)
FLASH_MIXED(>=)

#define FLASH_ONE(name, value)       \
  template <class F>                 \
  Float16<F> h##name(Float16<F> v) { \
    const float x = v;               \
    return value;                    \
  }                                  \
  template <class F>                 \
  Two16<F> h2##name(Two16<F> v) {    \
    return {h##name(v.x), h##name(v.y)}; \
  }
FLASH_ONE(exp, expf(x))
FLASH_ONE(exp2, exp2f(x))
FLASH_ONE(exp10, powf(10.0f, x))
FLASH_ONE(log, logf(x))
FLASH_ONE(log2, log2f(x))
FLASH_ONE(log10, log10f(x))
FLASH_ONE(sqrt, sqrtf(x))
FLASH_ONE(rsqrt, 1.0f / sqrtf(x))
FLASH_ONE(rcp, 1.0f / x)
FLASH_ONE(sin, sinf(x))
FLASH_ONE(cos, cosf(x))
FLASH_ONE(tanh, tanhf(x))
FLASH_ONE(floor, floorf(x))
FLASH_ONE(ceil, ceilf(x))
FLASH_ONE(trunc, truncf(x))
FLASH_ONE(rint, rintf(x))

template <class F>
Float16<F> __hfma(Float16<F> a, Float16<F> b, Float16<F> c) {
  return fmaf(a, b, c);
}
template <class F>
Two16<F> __hfma2(Two16<F> a, Two16<F> b, Two16<F> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class F>
Float16<F> __habs(Float16<F> a) {
  return fabsf(a);
}
template <class F>
Two16<F> __hneg2(Two16<F> a) {
  return -a;
}
template <class F>
Two16<F> __habs2(Two16<F> a) {
  return {__habs(a.x), __habs(a.y)};
}
#define FLASH_COMPARE(name, operation)      \
  template <class F>                        \
  bool name(Float16<F> a, Float16<F> b) {   \
    return float(a) operation float(b);     \
  }
FLASH_COMPARE(__heq, ==)
FLASH_COMPARE(__hne, !=)
FLASH_COMPARE(__hlt, <)
FLASH_COMPARE(__hle, <=)
FLASH_COMPARE(__hgt, >)
FLASH_COMPARE(__hge, >=)
template <class F>
bool __hisinf(Float16<F> a) {
  return std::isinf(float(a));
}
template <class F>
Float16<F> __low2half(Two16<F> a) {
  return a.x;
}
template <class F>
Float16<F> __high2half(Two16<F> a) {
  return a.y;
}
template <class F>
Two16<F> __lowhigh2highlow(Two16<F> a) {
  return {a.y, a.x};
}

template <class F>
FLASH_SIMT_ALWAYS_INLINE Float16<F> atomicAdd(Float16<F>* at, std::type_identity_t<Float16<F>> value) {
  const auto add = [value](std::uint16_t old) { return (Float16<F>::from_bits(old) + value).bits; };
  return Float16<F>::from_bits(atomic_update(&at->bits, add));
}
template <class F>
FLASH_SIMT_ALWAYS_INLINE Two16<F> atomicAdd(Two16<F>* at, std::type_identity_t<Two16<F>> value) {
  return {atomicAdd(&at->x, value.x), atomicAdd(&at->y, value.y)};
}

}  // namespace simt
}  // namespace flash

using flash::__habs, flash::__habs2, flash::__hdiv2, flash::__heq, flash::__hfma, flash::__hfma2, flash::__hge, flash::__hgt, flash::__high2half;
using flash::__hisinf, flash::__hle, flash::__hlt, flash::__hmax2, flash::__hmin2, flash::__hne, flash::__hneg2, flash::__low2half;
using flash::__lowhigh2highlow, flash::h2ceil, flash::h2cos, flash::h2exp, flash::h2exp2, flash::h2floor, flash::h2log, flash::h2log2, flash::h2rcp;
using flash::h2rsqrt, flash::h2sin, flash::h2sqrt, flash::h2tanh, flash::hceil, flash::hcos, flash::hexp, flash::hexp10, flash::hexp2, flash::hfloor;
using flash::hlog, flash::hlog10, flash::hlog2, flash::hrcp, flash::hrint, flash::hrsqrt, flash::hsin, flash::hsqrt, flash::htanh, flash::htrunc;
using flash::atomicAdd;
inline __half __int2half_rn(int x) { return static_cast<float>(x); }
inline int __half2int_rn(__half x) { return static_cast<int>(rintf(x)); }
inline __half __double2half(double x) { return static_cast<float>(x); }
inline __half __float2half_rz(float x) {
  const __half nearest = x;
  return fabsf(nearest) > fabsf(x) ? __half::from_bits(static_cast<std::uint16_t>(nearest.bits - 1)) : nearest;
}
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
