// The allocations that stand for a GPU's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flash::machine {

/// Addresses [begin, end).
struct MemoryRange {
  std::uintptr_t begin = 0, end = 0;
};

struct Allocation : MemoryRange {
  bool poisoned = false;  ///< holds no values until a kernel writes some
};

void add_device_memory(const void* begin, std::size_t bytes);
void remove_device_memory(const void* begin);
/// The host fills the allocation that holds this address, with values or with poison.
void set_poisoned(const void* inside, bool poisoned);
/// In ascending order.
std::vector<Allocation> device_memory();

}  // namespace flash::machine
