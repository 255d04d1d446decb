// The conversions are Eigen's; these are the places where another rounding, or another type, would differ.
#include "common/machine/isa/float16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace flash {

TEST_CASE("fp16: ties to even, subnormals, overflow, NaN") {
  CHECK(float_to_half(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(float_to_half(1.0f + 0x3p-11f) == 0x3c02);
  CHECK(float_to_half(0x1p-24f) == 0x0001);
  CHECK(float_to_half(0x1p-25f) == 0x0000);
  CHECK(float_to_half(std::nextafter(0x1p-25f, 1.0f)) == 0x0001);
  CHECK(half_to_float(0x8001) == -0x1p-24f);
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-1e30f) == 0xfc00);
  CHECK(float_to_half(INFINITY) == 0x7c00);
  CHECK(std::isnan(half_to_float(float_to_half(std::bit_cast<float>(0x7f800001u)))));
}

TEST_CASE("bf16: ties to even, overflow, NaN") {
  CHECK(float_to_bfloat16(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(float_to_bfloat16(1.0f + 0x3p-8f) == 0x3f82);
  CHECK(bfloat16_to_float(0x8001) == -0x1p-133f);
  CHECK(float_to_bfloat16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(float_to_bfloat16(-INFINITY) == 0xff80);
  CHECK(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0xff800001u)))));
}

TEST_CASE("a dtype rounds as its type") {
  CHECK(round_to(Dtype::fp32, 0.1f) == 0.1f);
  CHECK(round_to(Dtype::fp16, 0.1f) == 0x1.998p-4f);
  CHECK(round_to(Dtype::bf16, 0.1f) == 0x1.9ap-4f);
}

}  // namespace flash
