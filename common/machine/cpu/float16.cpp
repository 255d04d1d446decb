#include "common/machine/cpu/float16.hpp"

namespace flash {
inline namespace simt {
namespace {

thread_local Dtype format = Dtype::fp16;

}  // namespace

Dtype format_of_run() { return format; }
void set_format_of_run(Dtype dtype) { format = dtype; }

std::uint16_t RunFormat::encode(float value) { return format == Dtype::fp16 ? float_to_half(value) : float_to_bfloat16(value); }
float RunFormat::decode(std::uint16_t bits) { return format == Dtype::fp16 ? half_to_float(bits) : bfloat16_to_float(bits); }

}  // namespace simt
}  // namespace flash
