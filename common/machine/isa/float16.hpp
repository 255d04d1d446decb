// fp16 and bf16 as bit patterns in 16-bit integers, converted on the host with the rounding of the hardware.
#pragma once

#include "common/machine/types.hpp"

#include <cstdint>

namespace flash {

/// IEEE binary16, round to nearest even; overflow gives infinity, NaN stays NaN (quiet, sign kept).
std::uint16_t float_to_half(float value);
float half_to_float(std::uint16_t bits);

/// bfloat16, round to nearest even; NaN stays NaN.
std::uint16_t float_to_bfloat16(float value);
float bfloat16_to_float(std::uint16_t bits);

/// Writes a number in a dtype, to any address; reads it.
void store(Dtype dtype, char* to, float value);
float load(Dtype dtype, const char* from);

/// The value that `dtype` stores for `value`.
float round_to(Dtype dtype, float value);

}  // namespace flash
