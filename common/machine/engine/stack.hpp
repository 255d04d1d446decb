// Stacks for fibers, with a hole below each, so that running over the end is noticed at once.
#pragma once

#include "common/machine/engine/device_memory.hpp"
#include "common/machine/engine/instrumentation.hpp"

#include <signal.h>

#include <cstddef>
#include <memory>

namespace flash::machine {

/// One fiber's stack: [bottom, bottom + bytes).
struct Stack {
  std::byte* bottom = nullptr;
  std::size_t bytes = 0;
  Region region() const { return {reinterpret_cast<std::uintptr_t>(bottom), bytes}; }
};

/// Stacks of one operating-system thread, kept for later launches.
class StackPool {
 public:
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  /// Makes sure that stacks 0..count-1 exist. Throws DeviceError if the system gives no memory. All move if more are needed.
  void reserve(int count);
  Stack operator[](int index) const;

  /// All of them, with the holes below them.
  MemoryRange range() const;
  /// Whose stack, or hole below it, holds this address; -1 if none does.
  int owner(const void* address) const;
  /// Is this an address in the hole below stack `index`?
  bool in_guard(const void* address, int index) const;

 private:
  void release();
  std::byte* memory_ = nullptr;
  int count_ = 0;
};

/// While one lives, faults of memory and the stall timer's signal call on_signal. It does not return if a kernel is to blame; else the handler
/// that was there before gets the signal. on_signal runs on a stack of its own.
class SignalHandler {
 public:
  struct Signal {
    int number;
    const void* address;      ///< of a fault: what could not be accessed
    const void* instruction;  ///< that was interrupted
  };
  explicit SignalHandler(void (*on_signal)(const Signal&));
  ~SignalHandler();
  SignalHandler(const SignalHandler&) = delete;
  SignalHandler& operator=(const SignalHandler&) = delete;
};

/// The calling operating-system thread's signal stack, while this lives.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  stack_t before_ = {};
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace flash::machine
