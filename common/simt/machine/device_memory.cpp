#include "common/simt/machine/device_memory.hpp"

#include <map>
#include <mutex>

namespace flash::machine {
namespace {

std::mutex allocations_mutex;

std::map<std::uintptr_t, Allocation>& allocations() {
  static std::map<std::uintptr_t, Allocation> by_begin;
  return by_begin;
}

}  // namespace

void add_device_memory(const void* begin, std::size_t bytes) {
  const std::lock_guard lock(allocations_mutex);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  allocations()[first] = {{first, first + bytes}, false};
}

void remove_device_memory(const void* begin) {
  const std::lock_guard lock(allocations_mutex);
  allocations().erase(reinterpret_cast<std::uintptr_t>(begin));
}

void set_poisoned(const void* inside, bool poisoned) {
  const std::lock_guard lock(allocations_mutex);
  const auto after = allocations().upper_bound(reinterpret_cast<std::uintptr_t>(inside));
  if (after != allocations().begin()) std::prev(after)->second.poisoned = poisoned;
}

std::vector<Allocation> device_memory() {
  const std::lock_guard lock(allocations_mutex);
  std::vector<Allocation> all;
  for (const auto& [begin, allocation] : allocations()) all.push_back(allocation);
  return all;
}

}  // namespace flash::machine
