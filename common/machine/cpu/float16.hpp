// fp16 and bf16 as in cuda_fp16.h and cuda_bf16.h. Arithmetic rounds once: the fp32 result is exact enough that rounding it again gives
// the correctly rounded 16-bit result (Figueroa 1995: 24 >= 2*11 + 2 bits).
#pragma once

#include "common/machine/cpu/types.hpp"
#include "common/machine/isa/float16.hpp"

#include <cstdint>
#include <type_traits>

namespace flash {
inline namespace simt {

/// A 16-bit float, stored as its bits. Tag tells the formats apart.
template <class Tag>
struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  Float16(float value) : bits(Tag::encode(value)) {}
  operator float() const { return Tag::decode(bits); }
  static Float16 from_bits(std::uint16_t bits) {
    Float16 result;
    result.bits = bits;
    return result;
  }

  FLASH_SIMT_ALWAYS_INLINE friend Float16 operator+(Float16 a, Float16 b) { return float(a) + float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend Float16 operator-(Float16 a, Float16 b) { return float(a) - float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend Float16 operator*(Float16 a, Float16 b) { return float(a) * float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend Float16 operator/(Float16 a, Float16 b) { return float(a) / float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend Float16 operator-(Float16 a) { return from_bits(a.bits ^ 0x8000u); }
  FLASH_SIMT_ALWAYS_INLINE friend bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend bool operator<=(Float16 a, Float16 b) { return float(a) <= float(b); }
  FLASH_SIMT_ALWAYS_INLINE friend bool operator>=(Float16 a, Float16 b) { return float(a) >= float(b); }
  FLASH_SIMT_ALWAYS_INLINE Float16& operator+=(Float16 b) { return *this = *this + b; }
  FLASH_SIMT_ALWAYS_INLINE Float16& operator-=(Float16 b) { return *this = *this - b; }
  FLASH_SIMT_ALWAYS_INLINE Float16& operator*=(Float16 b) { return *this = *this * b; }
};

/// Two of them in one 32-bit register, x in the lower half.
template <class T>
struct alignas(4) [[gnu::may_alias]] Pair16 {
  T x, y;
};

struct HalfFormat {
  static std::uint16_t encode(float value) { return float_to_half(value); }
  static float decode(std::uint16_t bits) { return half_to_float(bits); }
};
struct Bfloat16Format {
  static std::uint16_t encode(float value) { return float_to_bfloat16(value); }
  static float decode(std::uint16_t bits) { return bfloat16_to_float(bits); }
};

/// The format of the run, fp16 or bf16. Each operating-system thread has its own; a launch hands it on to those that run its blocks.
Dtype format_of_run();
void set_format_of_run(Dtype);

/// Decides at run time: the simulator compiles a kernel once for both formats, in half the time.
struct RunFormat {
  static std::uint16_t encode(float value);
  static float decode(std::uint16_t bits);
};

using __half = Float16<HalfFormat>;
using __half2 = Pair16<__half>;
using half = __half;
using half2 = __half2;
using __nv_bfloat16 = Float16<Bfloat16Format>;
using __nv_bfloat162 = Pair16<__nv_bfloat16>;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
FLASH_SIMT_ALWAYS_INLINE float __half2float(__half x) { return x; }
inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
FLASH_SIMT_ALWAYS_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
FLASH_SIMT_ALWAYS_INLINE __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
FLASH_SIMT_ALWAYS_INLINE __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
FLASH_SIMT_ALWAYS_INLINE float2 __half22float2(__half2 v) { return {v.x, v.y}; }

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
FLASH_SIMT_ALWAYS_INLINE float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
FLASH_SIMT_ALWAYS_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
FLASH_SIMT_ALWAYS_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
FLASH_SIMT_ALWAYS_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
FLASH_SIMT_ALWAYS_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }

/// Calls f(T{}) with the type of elements in `dtype`, which is 16 bits wide.
template <class F>
void run_in_16_bits(Dtype dtype, F f) {
  set_format_of_run(dtype);
  f(Float16<RunFormat>{});
}

/// Whether T is fp16, not bf16.
template <class T>
bool is_fp16() {
  if constexpr (std::is_same_v<T, Float16<RunFormat>>) return format_of_run() == Dtype::fp16;
  return std::is_same_v<T, __half>;
}

// For both formats.
#define FLASH_OF_TWO(name, value)                                        \
  template <class F>                                                     \
  FLASH_SIMT_ALWAYS_INLINE Float16<F> name(Float16<F> a, Float16<F> b) { \
    return value;                                                        \
  }
FLASH_OF_TWO(__hadd, a + b)
FLASH_OF_TWO(__hsub, a - b)
FLASH_OF_TWO(__hmul, a* b)
FLASH_OF_TWO(__hdiv, a / b)
FLASH_OF_TWO(__hmax, __builtin_fmaxf(a, b))
FLASH_OF_TWO(__hmin, __builtin_fminf(a, b))
template <class F>
FLASH_SIMT_ALWAYS_INLINE Float16<F> __hneg(Float16<F> a) {
  return -a;
}
template <class F>
FLASH_SIMT_ALWAYS_INLINE bool __hisnan(Float16<F> a) {
  return float(a) != float(a);
}
#define FLASH_OF_PAIRS(name)                                                                        \
  template <class F>                                                                                \
  FLASH_SIMT_ALWAYS_INLINE Pair16<Float16<F>> name##2(Pair16<Float16<F>> a, Pair16<Float16<F>> b) { \
    return {name(a.x, b.x), name(a.y, b.y)};                                                        \
  }
FLASH_OF_PAIRS(__hadd)
FLASH_OF_PAIRS(__hsub)
FLASH_OF_PAIRS(__hmul)
FLASH_OF_PAIRS(__hdiv)
FLASH_OF_PAIRS(__hmax)
FLASH_OF_PAIRS(__hmin)
template <class F>
FLASH_SIMT_ALWAYS_INLINE float __low2float(Pair16<Float16<F>> v) {
  return v.x;
}
template <class F>
FLASH_SIMT_ALWAYS_INLINE float __high2float(Pair16<Float16<F>> v) {
  return v.y;
}

}  // namespace simt
}  // namespace flash
