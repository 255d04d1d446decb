// The memory that a kernel may access: its thread's stack, the block's shared memory, constants, its parameters, what a view, an atomic or an
// asynchronous copy has announced, and the memory that plain pointers among the kernel's parameters point to.
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

class Reach {
 public:
  /// Of a launch, on the operating-system thread that runs it.
  void start(const KernelCall&, const StackPool&);
  bool allows(std::uintptr_t address, std::size_t bytes, AccessKind) const;
  /// Under which id an access by a plain pointer counts; nothing if no parameter points to that memory.
  std::optional<int> counts_as(std::uintptr_t address, std::size_t bytes) const;
  /// "4 bytes past the end of K (65536 bytes)" of the parameters' memory that ends closest before the address; "" if none does.
  std::string past_the_end(std::uintptr_t address) const;

 private:
  struct Raw : MemoryRange {
    std::vector<std::string> tensors;  ///< that lie there
    int id = 0;                        ///< of the only one
  };
  MemoryRange call_, stacks_;
  std::vector<Raw> raw_;  ///< allocations that parameters point to
  bool host_ = false;     ///< a parameter points to memory of the host, of unknown size
};

}  // namespace flash::machine
