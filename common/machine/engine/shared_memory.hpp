// The shared memory of the block that runs, filled with NaN before each block.
#pragma once

#include "common/machine/engine/device_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flash::machine {

/// Dynamic shared memory, with a margin on either side in which accesses are noticed.
class SharedMemory {
 public:
  /// Addresses up to here from data() belong to dynamic shared memory or to the margin behind it.
  static constexpr std::size_t reach = 232 * 1024;

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Gives the next block `bytes` of memory, all 0xFF.
  void start_block(std::size_t bytes);

  /// Does an access begin in the reach and end beyond the block's memory?
  bool beyond(const void* address, std::size_t bytes) const;
  /// Does it begin in a margin?
  bool in_margin(const void* address) const;
  /// "bytes 64..67 of dynamic shared memory, which has 64 bytes"
  std::string words(const void* address, std::size_t bytes) const;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::byte* data_;
  std::size_t bytes_ = 0;
};

/// Fills the static __shared__ variables of all kernels, as this operating-system thread sees them, with 0xFF where the platform
/// lets us find them: on ELF systems, except that g++ leaves those of function templates out.
void poison_static_shared();

/// A static __shared__ variable of some kernel.
struct SharedVariable {
  std::string name;
  std::size_t offset, bytes;  ///< in the program's thread-local variables
};

/// "element 256 of shared variable tile, whose last is 255,": the static variable that holds this address, or lies next to it; "" if none does.
std::string static_shared_words(std::uintptr_t address, std::size_t bytes);
/// Is it between the static arrays of a plain file, where no variable lies (FLASH_MARGIN in include/cuda_runtime.h)?
bool in_static_margin(std::uintptr_t address);

/// Margins, and where g++ notes that a static variable has been initialised, though it has no constructor to call.
const std::vector<SharedVariable>& unwatched_variables();

/// Which of them a block writes: they hold something else after it. Known from the program's ELF symbols.
class StaticSharedUse {
 public:
  void start_block();
  std::vector<SharedVariable> written() const;

 private:
  std::vector<std::byte> before_;  ///< one variable after the other
};

}  // namespace flash::machine
