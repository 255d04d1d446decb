#include "common/machine/isa/float16.hpp"

#include <Eigen/Core>

#include <bit>
#include <cstring>

namespace flash {

std::uint16_t float_to_half(float value) { return Eigen::half(value).x; }
float half_to_float(std::uint16_t bits) { return Eigen::half_impl::half_to_float(Eigen::half_impl::raw_uint16_to_half(bits)); }

std::uint16_t float_to_bfloat16(float value) { return Eigen::bfloat16(value).value; }
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
