#include "common/machine/engine/device_memory.hpp"

#include "common/machine/cpu/view.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

namespace flash::machine {
namespace {

std::mutex allocations_mutex;

std::map<std::uintptr_t, Allocation>& allocations() {
  static std::map<std::uintptr_t, Allocation> by_begin;
  return by_begin;
}

std::map<std::uintptr_t, Allocation>& freed_allocations() {
  static std::map<std::uintptr_t, Allocation> by_begin;
  return by_begin;
}

std::map<std::uintptr_t, TensorRef>& tensors() {
  static std::map<std::uintptr_t, TensorRef> by_begin;
  return by_begin;
}

/// Of tensors that were here before.
void forget_names(const MemoryRange& range) {
  tensors().erase(tensors().lower_bound(range.begin), tensors().lower_bound(range.end));
}

/// By the strides, the widest first: is there an element at an offset from the first?
bool has_element(const TensorRef& t, std::int64_t offset) {
  std::array<std::size_t, 4> axes{0, 1, 2, 3};
  std::ranges::stable_sort(axes, [&](std::size_t a, std::size_t b) { return t.stride[a] > t.stride[b]; });
  for (const std::size_t axis : axes) {
    if (t.stride[axis] != 0) offset -= std::min(offset / t.stride[axis], t.shape[axis] - 1) * t.stride[axis];
  }
  return offset == 0;
}

}  // namespace

void add_device_memory(const void* begin, std::size_t bytes, std::shared_ptr<const simt::MemoryOrigin> origin) {
  const int id = origin == nullptr ? 0 : simt::traffic_id(name_of(*origin).c_str());
  const std::lock_guard lock(allocations_mutex);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  allocations()[first] = {{first, first + bytes}, false, std::move(origin), id};
  forget_names(allocations()[first]);
  auto& freed = freed_allocations();
  for (auto at = freed.begin(); at != freed.end() && at->first < first + bytes;)
    at = at->second.end > first ? freed.erase(at) : std::next(at);
}

bool remove_device_memory(const void* begin, simt::Site freed) {
  const std::lock_guard lock(allocations_mutex);
  const auto found = allocations().find(reinterpret_cast<std::uintptr_t>(begin));
  if (found == allocations().end()) return false;
  forget_names(found->second);
  found->second.freed = freed;
  if (found->second.origin != nullptr) freed_allocations()[found->first] = std::move(found->second);
  allocations().erase(found);
  return true;
}

std::optional<Allocation> origin_near(std::uintptr_t address, std::uintptr_t distance) {
  const std::lock_guard lock(allocations_mutex);
  std::optional<Allocation> closest;
  ++distance;
  const auto look = [&](const Allocation& allocation) {
    const std::uintptr_t away = address < allocation.begin ? allocation.begin - address
                                : address < allocation.end ? 0
                                                           : address - allocation.end + 1;
    if (allocation.origin == nullptr || away >= distance) return;
    closest = allocation;
    distance = away;
  };
  for (const auto* const all : {&allocations(), &freed_allocations()}) {
    const auto after = all->upper_bound(address);
    if (after != all->begin()) look(std::prev(after)->second);
    if (after != all->end()) look(after->second);
  }
  return closest;
}

MemoryRange allocation_at(std::uintptr_t address) {
  const std::lock_guard lock(allocations_mutex);
  const auto after = allocations().upper_bound(address);
  if (after == allocations().begin() || address >= std::prev(after)->second.end) return {};
  return std::prev(after)->second;
}

void name_memory(const TensorRef& tensor) {
  const std::lock_guard lock(allocations_mutex);
  tensors()[reinterpret_cast<std::uintptr_t>(tensor.data)] = tensor;
}

std::string tensor_at(std::uintptr_t address) {
  const std::lock_guard lock(allocations_mutex);
  for (auto next = tensors().upper_bound(address); next != tensors().begin();) {
    const auto& [begin, tensor] = *--next;
    if (has_element(tensor, static_cast<std::int64_t>(address - begin) / size_of(tensor.dtype))) return tensor.name;
  }
  return "";
}

std::vector<std::string> tensors_in(const MemoryRange& range) {
  const std::lock_guard lock(allocations_mutex);
  std::vector<std::string> names;
  for (auto next = tensors().lower_bound(range.begin); next != tensors().end() && next->first < range.end; ++next)
    names.emplace_back(next->second.name);
  return names;
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
