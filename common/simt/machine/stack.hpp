// Stacks for fibers, with a hole below each, so that running over the end is noticed at once.
#pragma once

#include <cstddef>

namespace flash::machine {

/// One fiber's stack: [bottom, bottom + bytes).
struct Stack {
  std::byte* bottom = nullptr;
  std::size_t bytes = 0;
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

  /// Is this an address in the hole below stack `index`?
  bool in_guard(const void* address, int index) const;

 private:
  void release();
  std::byte* memory_ = nullptr;
  int count_ = 0;
};

/// While one lives, a fault in a guard calls on_overflow(address), which does not return if the address is in a guard it knows; all
/// other faults go to the handler that was there before. on_overflow runs on a stack of its own.
class OverflowHandler {
 public:
  explicit OverflowHandler(void (*on_overflow)(const void* address));
  ~OverflowHandler();
  OverflowHandler(const OverflowHandler&) = delete;
  OverflowHandler& operator=(const OverflowHandler&) = delete;
};

/// The calling operating-system thread's signal stack, while this lives.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace flash::machine
