// The memory that a kernel may access: its thread's stack, the block's shared memory, constants, its parameters, what a view, an atomic or an
// asynchronous copy has announced, and the memory that plain pointers among the kernel's parameters point to.
//
// Anything else is an error: memory of a tensor whose view was passed by, another thread's local variables, the simulator's memory, the host's.
// The own stack is held in Instruments, where each access is compared with it.
#pragma once

#include "common/simt/launch.hpp"
#include "common/simt/machine/instrumentation.hpp"
#include "common/simt/machine/module.hpp"
#include "common/simt/machine/stack.hpp"
#include "common/simt/machine/watch.hpp"

#include <string>
#include <vector>

namespace flash::machine {

class Reach {
 public:
  /// Of a launch, on the operating-system thread that runs it.
  void start(const KernelCall&, const StackPool&);
  /// False where the platform does not tell where __shared__ variables lie.
  bool known() const { return locals_.begin != 0; }
  void start_block(MemoryRange dynamic_shared) { dynamic_ = dynamic_shared; }

  bool allows(std::uintptr_t address, std::size_t bytes, AccessKind kind) const {
    const auto within = [&](const MemoryRange& range) { return address >= range.begin && address + bytes <= range.end; };
    if (within(dynamic_)) return true;
    if (within(locals_)) return kind == AccessKind::read || address >= own_.end || address + bytes <= own_.begin;
    return is_announced(address, bytes, kind) || elsewhere(address, bytes, kind);
  }

 private:
  static bool is_announced(std::uintptr_t address, std::size_t bytes, AccessKind);
  bool elsewhere(std::uintptr_t address, std::size_t bytes, AccessKind) const;

  MemoryRange dynamic_, locals_, own_, call_, stacks_;
  std::vector<MemoryRange> raw_;  ///< allocations that parameters point to
  bool host_ = false;             ///< a parameter points to memory of the host, of unknown size
};

}  // namespace flash::machine
