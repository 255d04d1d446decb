// Conversions by integer arithmetic: no subnormal float ever appears, which would cost about a hundred cycles each.
//
//            sign  exponent  mantissa  bias
//   fp32       1      8         23      127
//   fp16       1      5         10       15
//   bf16       1      8          7      127    the upper half of an fp32
#include "common/isa/float16.hpp"

#include <bit>
#include <cstring>

namespace flash {
namespace {

constexpr std::uint32_t float_infinity = 0x7F800000u;

/// x / 2^shift rounded to the nearest integer, ties to even.
constexpr std::uint32_t round_shift(std::uint32_t x, int shift) {
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t odd = x >> shift & 1u;
  return (x + half - 1u + odd) >> shift;  // a carry into the exponent is the next power of two, as it should be
}

}  // namespace

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t result;
  if (magnitude > float_infinity) {
    result = 0x7E00u | (magnitude >> 13 & 0x3FFu);  // NaN, made quiet
  } else if (magnitude >= 0x477FF000u) {
    result = 0x7C00u;  // 65520 and more: halfway beyond the largest half, 65504
  } else if (magnitude >= 0x38800000u) {
    result = round_shift(magnitude - ((127u - 15u) << 23), 13);  // 2^-14 and more: normal
  } else if (magnitude > 0x33000000u) {
    // Subnormal, a multiple of 2^-24: the mantissa with its leading one, shifted to that unit.
    const int exponent = static_cast<int>(magnitude >> 23);  // 102..112
    result = round_shift((magnitude & 0x007FFFFFu) | 0x00800000u, 126 - exponent);
  } else {
    result = 0;  // 2^-25 and less: ties to even
  }
  return static_cast<std::uint16_t>(sign | result);
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1Fu;
  std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | float_infinity | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 127u - 15u) << 23 | mantissa << 13);
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(mantissa) - 21;  // that brings the leading one to bit 10
  mantissa = mantissa << shift & 0x3FFu;
  return std::bit_cast<float>(sign | (127u - 14u - static_cast<std::uint32_t>(shift)) << 23 | mantissa << 13);
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > float_infinity) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // NaN, made quiet
  return static_cast<std::uint16_t>((bits & 0x80000000u) >> 16 | round_shift(bits & 0x7FFFFFFFu, 16));
}

float bfloat16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

void store(Dtype dtype, char* to, float value) {
  if (dtype == Dtype::fp32) {
    std::memcpy(to, &value, sizeof value);
  } else {
    const std::uint16_t bits = dtype == Dtype::fp16 ? float_to_half(value) : float_to_bfloat16(value);
    std::memcpy(to, &bits, sizeof bits);
  }
}

float load(Dtype dtype, const char* from) {
  if (dtype == Dtype::fp32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return dtype == Dtype::fp16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

float round_to(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::fp32:
      return value;
    case Dtype::fp16:
      return half_to_float(float_to_half(value));
    case Dtype::bf16:
      return bfloat16_to_float(float_to_bfloat16(value));
  }
  return value;
}

}  // namespace flash
