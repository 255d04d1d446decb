// Conversions of fp16 and bf16 against all 65,536 patterns of each. What a pattern means is computed here in double, from its fields.
#include "common/isa/float16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace flash {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  std::uint16_t (*encode)(float);
  float (*decode)(std::uint16_t);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int exponent(unsigned pattern) const { return static_cast<int>(pattern >> mantissa_bits) & ((1 << exponent_bits) - 1); }
  int mantissa(unsigned pattern) const { return static_cast<int>(pattern) & ((1 << mantissa_bits) - 1); }
  bool is_nan(unsigned pattern) const { return exponent(pattern) == 2 * bias() + 1 && mantissa(pattern) != 0; }
  unsigned infinity() const { return static_cast<unsigned>(2 * bias() + 1) << mantissa_bits; }

  /// (-1)^sign * 2^(exponent - bias) * 1.mantissa; without the leading one if the exponent is zero.
  double value(unsigned pattern) const {
    const double sign = pattern >> 15 != 0 ? -1.0 : 1.0;
    if ((pattern & 0x7fffu) == infinity()) return sign * std::numeric_limits<double>::infinity();
    const int e = exponent(pattern);
    const int whole = mantissa(pattern) + (e == 0 ? 0 : 1 << mantissa_bits);
    return sign * std::ldexp(whole, (e == 0 ? 1 : e) - bias() - mantissa_bits);
  }
};

const Format fp16{5, 10, float_to_half, half_to_float};
const Format bf16{8, 7, float_to_bfloat16, bfloat16_to_float};

/// Same number and same sign of zero.
bool same(double a, double b) { return a == b && std::signbit(a) == std::signbit(b); }

/// The pattern of least distance; at a tie the even one. Of two neighbours, as numbers or infinity.
unsigned nearest(const Format& format, double x) {
  const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
  const double magnitude = std::abs(x);
  unsigned low = 0, high = format.infinity();  // bisection: patterns rise with their values
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (format.value(middle) <= magnitude ? low : high) = middle;
  }
  // Beyond the largest number, infinity stands where the next number would.
  const double above = high == format.infinity() ? std::ldexp(1.0, format.bias() + 1) : format.value(high);
  const double to_low = magnitude - format.value(low), to_high = above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
  return sign | (up ? high : low);
}

void check_format(const Format& format) {
  int wrong_values = 0, wrong_round_trips = 0, wrong_nans = 0;
  for (unsigned pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float decoded = format.decode(bits);
    if (format.is_nan(pattern)) {
      wrong_nans += !std::isnan(decoded) || !format.is_nan(format.encode(decoded)) ||
                    std::signbit(decoded) != (pattern >> 15 != 0) || format.encode(decoded) >> 15 != bits >> 15;
    } else {
      wrong_values += !same(double{decoded}, format.value(pattern));
      wrong_round_trips += format.encode(decoded) != bits;
    }
  }
  CHECK(wrong_values == 0);
  CHECK(wrong_round_trips == 0);
  CHECK(wrong_nans == 0);
}

/// Between each number and the next: the midpoint and the floats right beside it.
void check_midpoints(const Format& format) {
  int wrong = 0;
  for (unsigned pattern = 0; pattern < format.infinity(); ++pattern) {
    const double above = pattern + 1 == format.infinity() ? std::ldexp(1.0, format.bias() + 1) : format.value(pattern + 1);
    const auto middle = static_cast<float>((format.value(pattern) + above) / 2);
    REQUIRE(double{middle} == (format.value(pattern) + above) / 2);  // fp32 has every midpoint
    for (const float x : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, INFINITY)}) {
      wrong += format.encode(x) != nearest(format, double{x});
      wrong += format.encode(-x) != nearest(format, -double{x});
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("fp16: every pattern") { check_format(fp16); }
TEST_CASE("bf16: every pattern") { check_format(bf16); }
TEST_CASE("fp16: every midpoint and its neighbours") { check_midpoints(fp16); }
TEST_CASE("bf16: every midpoint and its neighbours") { check_midpoints(bf16); }

}  // namespace flash
