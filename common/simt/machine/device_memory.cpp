#include "common/simt/machine/device_memory.hpp"

#include <map>
#include <mutex>

namespace flash::machine {
namespace {

std::mutex allocations_mutex;

std::map<std::uintptr_t, std::size_t>& allocations() {
  static std::map<std::uintptr_t, std::size_t> bytes_at;
  return bytes_at;
}

}  // namespace

void add_device_memory(const void* begin, std::size_t bytes) {
  const std::lock_guard lock(allocations_mutex);
  allocations()[reinterpret_cast<std::uintptr_t>(begin)] = bytes;
}

void remove_device_memory(const void* begin) {
  const std::lock_guard lock(allocations_mutex);
  allocations().erase(reinterpret_cast<std::uintptr_t>(begin));
}

std::vector<MemoryRange> device_memory() {
  const std::lock_guard lock(allocations_mutex);
  std::vector<MemoryRange> ranges;
  for (const auto& [begin, bytes] : allocations()) ranges.push_back({begin, begin + bytes});
  return ranges;
}

}  // namespace flash::machine
