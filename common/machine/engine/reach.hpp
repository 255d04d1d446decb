// The memory that a kernel may access: its thread's stack, the block's shared memory, constants, its parameters, device memory, and the host's where
// plain pointers among the parameters point there.
//
// Anything else is an error: another thread's local variables, the simulator's memory, the host's. Stack and shared memory are found in Instruments,
// where each access is compared with them, as is what a view has announced, and counted; what is outside comes here.
#pragma once

#include "common/machine/cpu/launch.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/stack.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash::machine {

/// "64 bytes past the end of the 256 bytes of cudaMalloc at x.cu:7", of the memory with an origin that is nearest; "" if none is near.
std::string place_near(std::uintptr_t address, std::size_t bytes);

/// ", or an index far outside of cudaMalloc at x.cu:7", of the parameter that points nearest; "" if none does, or one points right there.
std::string far_from_parameters(std::uintptr_t address, const KernelCall&);

class Reach {
 public:
  /// Of a launch, on the operating-system thread that runs it.
  void start(const KernelCall&, const StackPool&, bool host_pointers);
  bool allows(std::uintptr_t address, std::size_t bytes, AccessKind) const;
  /// Under which id an access past views counts; nothing if it is none to device memory.
  std::optional<int> counts_as(std::uintptr_t address, std::size_t bytes, AccessKind);
  /// "4 bytes past the end of K (65536 bytes)" of the parameters' memory that ends closest before the address; "" if none does.
  std::string past_the_end(std::uintptr_t address) const;
  /// A launch that nobody watches has written there: what it wrote is no longer unwritten.
  void end();

 private:
  struct Raw : MemoryRange {
    std::vector<std::string> tensors;  ///< that lie there
    int id = 0;                        ///< of the only one
    bool pointed = false;              ///< to, by a parameter
    bool written = false;              ///< unseen
  };
  MemoryRange call_, stacks_;
  std::vector<Raw> raw_;  ///< all allocations, in ascending order
  bool host_ = false;     ///< a parameter points to memory of the host, of unknown size, and may
};

}  // namespace flash::machine
