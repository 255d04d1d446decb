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

/// Counts an atomic operation of the running thread; after a __threadfence it publishes what the thread wrote before.
void begin_atomic(void* address);

/// Replaces the number at an address by change(number) in one step; returns the old one.
template <class T, class Change>
FLASH_SIMT_ALWAYS_INLINE T atomic_update(T* address, Change change) {
  begin_atomic(address);
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T changed = change(old);
  while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) changed = change(old);
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
template <AtomicNumber T>
FLASH_SIMT_ALWAYS_INLINE T atomicAdd(GlobalPointer<T> pointer, std::type_identity_t<T> value) {
  return atomicAdd(count_atomic(pointer), value);
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicSub(GlobalPointer<T> pointer, std::type_identity_t<T> value) {
  return atomicSub(count_atomic(pointer), value);
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicMax(GlobalPointer<T> pointer, std::type_identity_t<T> value) {
  return atomicMax(count_atomic(pointer), value);
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicMin(GlobalPointer<T> pointer, std::type_identity_t<T> value) {
  return atomicMin(count_atomic(pointer), value);
}
template <AtomicNumber T>
FLASH_SIMT_ALWAYS_INLINE T atomicExch(GlobalPointer<T> pointer, std::type_identity_t<T> value) {
  return atomicExch(count_atomic(pointer), value);
}
template <AtomicInteger T>
FLASH_SIMT_ALWAYS_INLINE T atomicCAS(GlobalPointer<T> pointer, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return atomicCAS(count_atomic(pointer), compare, value);
}

/// A read through the read-only cache.
template <class T>
std::remove_const_t<T> __ldg(T* address) {
  return *address;
}
template <class T>
std::remove_const_t<T> __ldg(GlobalPointer<T> pointer) {
  count_read(pointer.id, pointer.data, sizeof(T), pointer.site);
  return *pointer.data;
}

}  // namespace simt
}  // namespace flash
