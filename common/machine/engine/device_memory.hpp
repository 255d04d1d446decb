// The allocations that stand for a GPU's memory.
#pragma once

#include "common/machine/cpu/allocations.hpp"
#include "common/machine/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flash::machine {

/// Addresses [begin, end).
struct MemoryRange {
  std::uintptr_t begin = 0, end = 0;
};

/// What each word of managed memory holds at first, since the host's stores go unnoticed: a signaling NaN, as in docs/lab/judge.hpp.
constexpr std::uint32_t unwritten_managed = 0x7FA00000u;

struct Allocation : MemoryRange {
  bool poisoned = false;                                       ///< holds no values until a kernel writes some
  std::shared_ptr<const simt::MemoryOrigin> origin = nullptr;  ///< if the program's own call made it: plain pointers reach it
  int id = 0;                                                  ///< then: under which its bytes count
  std::optional<simt::Site> freed = {};
};

void add_device_memory(const void* begin, std::size_t bytes, std::shared_ptr<const simt::MemoryOrigin> = nullptr);
/// False if none begins there. One with an origin is remembered.
bool remove_device_memory(const void* begin, simt::Site freed = {});
/// Of those with an origin, alive or freed, the one that holds this address or, within `distance`, lies closest to it.
std::optional<Allocation> origin_near(std::uintptr_t address, std::uintptr_t distance);
/// The host fills the allocation that holds this address, with values or with poison.
void set_poisoned(const void* inside, bool poisoned);
/// The allocation that holds this address; empty if none does.
MemoryRange allocation_at(std::uintptr_t address);

/// A tensor of a problem, or of which a view was made: its memory goes by its name until it is released, or a tensor of another name starts there.
void name_memory(const TensorRef&);
/// The name of the tensor that has an element at this address; "" if none has.
std::string tensor_at(std::uintptr_t address);
/// The names of the tensors that begin in an allocation, in ascending order.
std::vector<std::string> tensors_in(const MemoryRange&);

/// In ascending order.
std::vector<Allocation> device_memory();

}  // namespace flash::machine
