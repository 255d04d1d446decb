// The program, or shared library, that the simulator and its kernels are linked into, as the loader and the ELF symbols tell of it.
#pragma once

#include "common/machine/engine/device_memory.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// Of the simulator's own thread-local variables: kernels may read them, and not write them. The section's ends bound them.
#if defined(__linux__)
#define FLASH_MACHINE_VARIABLE [[gnu::section("flash_machine")]]
#else
#define FLASH_MACHINE_VARIABLE
#endif

namespace flash::machine {

/// The calling thread's copy of the module's thread-local variables. Empty where the platform does not tell.
struct ThreadLocals {
  MemoryRange all;
  MemoryRange shared;  ///< those that __shared__ puts into its section: g++ leaves those of function templates out
  MemoryRange own;     ///< the simulator's
};
const ThreadLocals& thread_locals();

/// Memory that nobody can write: constants of this and all other modules.
const std::vector<MemoryRange>& constant_memory();

struct Symbol {
  std::string_view name;
  bool thread_local_, object;
  std::uintptr_t value;  ///< in the module's file, or in its thread-local variables
  std::size_t bytes;
};
/// Of the module; none if they have been stripped.
void for_each_symbol(const std::function<void(const Symbol&)>&);

/// "A_tile" for "_ZZN5flash12tile_productEvE6A_tile".
std::string variable_name(std::string_view symbol);
/// The global variable at an address; "" if none is known.
std::string variable_at(std::uintptr_t address);

/// Is there memory?
bool is_mapped(std::uintptr_t address);

}  // namespace flash::machine
