#include "common/machine/isa/tensor_map.hpp"

#include <stdexcept>

namespace flash {

// CUDA Driver API, cuTensorMapEncodeTiled.
std::string why_no_tensor_map(const TensorRef& t) {
  if (size_of(t.dtype) != 2) return "its elements are not 16 bits wide";
  if (t.stride[3] != 1 && t.shape[3] > 1) return "its columns are not adjacent";
  if (reinterpret_cast<std::uintptr_t>(t.data) % 16 != 0) return "its address is not a multiple of 16 bytes";
  for (const std::int64_t extent : t.shape) {
    if (extent < 1 || extent > std::int64_t{1} << 32) return "an extent is not within 1..2^32";
  }
  for (const std::int64_t bytes : tensor_map_strides(t)) {
    if (bytes % 16 != 0) return "a stride is not a multiple of 16 bytes";
    if (bytes < 0 || bytes >= std::int64_t{1} << 40) return "a stride is not within 0..2^40 bytes";
  }
  return "";
}

std::array<std::int64_t, 3> tensor_map_strides(const TensorRef& t) {
  std::array<std::int64_t, 3> bytes{};
  std::int64_t dense = (t.shape[3] + 7) / 8 * 16;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t axis = 2 - i;  // N, H, B
    bytes[i] = t.shape[axis] == 1 ? dense : t.stride[axis] * size_of(t.dtype);
    dense = bytes[i] * t.shape[axis];
  }
  return bytes;
}

void require_tensor_map(const TensorRef& t, int box_rows) {
  const std::string name = std::string("the TMA cannot copy ") + t.name;
  if (const std::string why = why_no_tensor_map(t); !why.empty()) throw std::logic_error(name + ": " + why);
  if (box_rows < 1 || box_rows > 256)
    throw std::logic_error(name + " in boxes of " + std::to_string(box_rows) + " rows: allowed are 1 to 256");
}

}  // namespace flash
