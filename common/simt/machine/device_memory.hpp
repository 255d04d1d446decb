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

void add_device_memory(const void* begin, std::size_t bytes);
void remove_device_memory(const void* begin);
std::vector<MemoryRange> device_memory();

}  // namespace flash::machine
