#include "common/attention/device.hpp"

#include <algorithm>

namespace flash {

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : 0.5 * (times[middle - 1] + times[middle]);
}

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
