// Atomics. Relaxed, as CUDA's are: they order no other memory access. Always inlined, which lets a race's message name the kernel's line.
#pragma once

#include "common/machine/cpu/element_ref.hpp"

#include <concepts>
#include <type_traits>

namespace flash {
inline namespace simt {

template <class T>
concept AtomicInteger = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;
template <class T>
concept AtomicNumber = AtomicInteger<T> || std::same_as<T, float> || std::same_as<T, double>;

/// Counts an atomic operation of the running thread. One that writes publishes what the thread wrote before its last __threadfence; one that draws a
/// ticket makes an order in practice, even if no fence follows.
void begin_atomic(void* address, bool writes = true, bool draws = true);
/// It has read a number. Not before: the thread may have paused, while another one published.
void end_atomic(void* address);

/// While one lives, atomics are those of a block: for the threads of another they are none.
struct AtomicsOfBlock {
  AtomicsOfBlock();
  ~AtomicsOfBlock();
};

/// Replaces the number at an address by change(number) in one step; returns the old one.
template <class T, class Change>
FLASH_SIMT_ALWAYS_INLINE T atomic_update(T* address, Change change, bool draws = true) {
  begin_atomic(address, true, draws);
  T old{};  // a guess
  T changed = change(old);
  while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) changed = change(old);
  end_atomic(address);
  return old;
}

template <AtomicNumber T>
FLASH_SIMT_ALWAYS_INLINE T atomicAdd(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [value](T old) { return old + value; });
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicSub(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [value](T old) { return old - value; });
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicMax(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [value](T old) { return old < value ? value : old; });
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicMin(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [value](T old) { return value < old ? value : old; });
}
template <AtomicNumber T>
FLASH_SIMT_ALWAYS_INLINE T atomicExch(T* address, std::type_identity_t<T> value) {
  begin_atomic(address);
  T old;
  __atomic_exchange(address, &value, &old, __ATOMIC_RELAXED);
  end_atomic(address);
  return old;
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return atomic_update(address, [compare, value](T old) { return old == compare ? value : old; });
}

// The same on an element of a tensor, where the bytes are counted: one read and one write.
template <class T>
T* count_atomic(const GlobalPointer<T>& pointer) {
  count_read_and_written(pointer.id, pointer.data, sizeof(T), pointer.site);
  return pointer.data;
}
#define FLASH_OF_TENSOR(name)                                                \
  template <AtomicNumber T, class... V>                                      \
  FLASH_SIMT_ALWAYS_INLINE T name(GlobalPointer<T> pointer, V... operands) { \
    return name(count_atomic(pointer), operands...);                         \
  }
FLASH_OF_TENSOR(atomicAdd)
FLASH_OF_TENSOR(atomicSub)

}  // namespace simt
}  // namespace flash
