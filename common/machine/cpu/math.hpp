// CUDA's device functions for arithmetic and bits, beside those that <math.h> already has (expf, exp2f, fmaxf, fmaf, ...).
// The fast approximations (__expf, ...) are as exact as the host's functions: a GPU's are not.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>

namespace flash {
inline namespace simt {

constexpr int min(int a, int b) { return b < a ? b : a; }
constexpr int max(int a, int b) { return a < b ? b : a; }
constexpr unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
constexpr unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
constexpr long min(long a, long b) { return b < a ? b : a; }
constexpr long max(long a, long b) { return a < b ? b : a; }
constexpr long long min(long long a, long long b) { return b < a ? b : a; }
constexpr long long max(long long a, long long b) { return a < b ? b : a; }
// A NaN loses against a number, as in CUDA, unless it is what memory and variables hold that no one has written: that shows in the result.
inline bool is_unwritten(float x) { return std::bit_cast<unsigned>(x) == 0xffffffffu; }
template <class = void>  // so that the C library's are no rivals where both are visible
float fminf(float a, float b) {
  return is_unwritten(a) ? a : is_unwritten(b) ? b : ::fminf(a, b);
}
template <class = void>
float fmaxf(float a, float b) {
  return is_unwritten(a) ? a : is_unwritten(b) ? b : ::fmaxf(a, b);
}
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

constexpr unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
constexpr int __float_as_int(float x) { return std::bit_cast<int>(x); }
constexpr float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
constexpr float __int_as_float(int x) { return std::bit_cast<float>(x); }
constexpr long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
constexpr double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
constexpr float __int2float_rn(int x) { return static_cast<float>(x); }

constexpr int __popc(unsigned x) { return std::popcount(x); }
constexpr int __popcll(unsigned long long x) { return std::popcount(x); }
constexpr int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
constexpr int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
constexpr unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
/// The upper 32 bits of hi:lo << (shift mod 32), and the lower 32 bits of hi:lo >> (shift mod 32).
constexpr unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  const std::uint64_t both = std::uint64_t{hi} << 32 | lo;
  return static_cast<unsigned>(both << (shift & 31u) >> 32);
}
constexpr unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  const std::uint64_t both = std::uint64_t{hi} << 32 | lo;
  return static_cast<unsigned>(both >> (shift & 31u));
}

}  // namespace simt
}  // namespace flash
