// The memory that a kernel may access: its thread's stack, the block's shared memory, constants, its parameters, what a view, an atomic or an
// asynchronous copy has announced, the memory that plain pointers among the kernel's parameters point to, and all that has an origin
// (cpu/allocations.hpp).
//
// Anything else is an error: memory of a tensor whose view was passed by, another thread's local variables, the simulator's memory, the host's.
// Stack and shared memory are found in Instruments, where each access is compared with them; what is outside comes here.
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
  /// Under which id an access by a plain pointer counts; nothing if no parameter points to that memory.
  std::optional<int> counts_as(std::uintptr_t address, std::size_t bytes, AccessKind);
  /// "4 bytes past the end of K (65536 bytes)" of the parameters' memory that ends closest before the address; "" if none does.
  std::string past_the_end(std::uintptr_t address) const;
  /// A launch that nobody watches has written there: what it wrote is no longer unwritten.
  void end();

 private:
  struct Raw : MemoryRange {
    std::vector<std::string> tensors;  ///< that lie there
    int id = 0;                        ///< of the only one
    bool written = false;              ///< unseen
  };
  MemoryRange call_, stacks_;
  std::vector<Raw> raw_;  ///< allocations that parameters point to, or that have an origin; in ascending order
  bool host_ = false;     ///< a parameter points to memory of the host, of unknown size, and may
};

}  // namespace flash::machine
