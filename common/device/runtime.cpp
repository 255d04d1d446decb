#include "common/device/runtime.hpp"

namespace flash {

std::uint64_t Counters::read_bytes() const {
  std::uint64_t sum = 0;
  for (const TensorTraffic& tensor : traffic) sum += tensor.read_bytes;
  return sum;
}

std::uint64_t Counters::written_bytes() const {
  std::uint64_t sum = 0;
  for (const TensorTraffic& tensor : traffic) sum += tensor.written_bytes;
  return sum;
}

std::uint64_t Counters::sectors() const {
  std::uint64_t sum = 0;
  for (const TensorTraffic& tensor : traffic) sum += tensor.read_sectors + tensor.written_sectors;
  return sum;
}

}  // namespace flash
