// One element of global or shared memory, as views hand it out.
#pragma once

#include "common/machine/cpu/site.hpp"
#include "common/machine/cpu/types.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace flash {
inline namespace simt {

/// An element that can be written: converting reads it, assigning writes it. `Watch` is told of either.
template <class T, class Watch>
class Reference {
 public:
  Reference(T* address, const Watch& watch) : address_(address), watch_(watch) {}
  Reference(const Reference&) = default;

  FLASH_SIMT_ALWAYS_INLINE operator T() const {
    watch_.read(address_, sizeof(T));
    return *address_;
  }
  FLASH_SIMT_ALWAYS_INLINE const Reference& operator=(T value) const {
    watch_.write(address_, sizeof(T));
    *address_ = value;
    return *this;
  }
  FLASH_SIMT_ALWAYS_INLINE const Reference& operator=(const Reference& other) const { return *this = static_cast<T>(other); }
  FLASH_SIMT_ALWAYS_INLINE const Reference& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }
  FLASH_SIMT_ALWAYS_INLINE const Reference& operator-=(T value) const { return *this = static_cast<T>(*this) - value; }
  FLASH_SIMT_ALWAYS_INLINE const Reference& operator*=(T value) const { return *this = static_cast<T>(*this) * value; }
  FLASH_SIMT_ALWAYS_INLINE const Reference& operator/=(T value) const { return *this = static_cast<T>(*this) / value; }

 private:
  T* address_;
  Watch watch_;
};

/// What view(row, col) is: a value that was read, if the elements are const, else a Reference.
template <class T, class Watch>
using Element = std::conditional_t<std::is_const_v<T>, std::remove_const_t<T>, Reference<T, Watch>>;

template <class T, class Watch>
FLASH_SIMT_ALWAYS_INLINE Element<T, Watch> element(T* address, const Watch& watch) {
  if constexpr (std::is_const_v<T>) {
    watch.read(address, sizeof(T));
    return *address;
  } else {
    return {address, watch};
  }
}

/// Bytes moved from and to one tensor, and the 32-byte sectors that warps touched for them (in counting runs).
struct Traffic {
  std::uint64_t read = 0, written = 0;
  std::uint64_t read_sectors = 0, written_sectors = 0;
};

/// What an access does. An atomic is one read and one write; one of the block is none for other blocks; a store is one that asks for no value.
enum class Touch : std::uint8_t {
  read,
  load,  ///< atomic, too, or of a volatile flag
  write,
  atomic,
  block_atomic = 5,
  store = 7,
  block_store = 9,
};
constexpr bool reads(Touch touch) { return touch < Touch::write; }
constexpr bool is_atomic(Touch touch) { return (static_cast<unsigned>(touch) & 1u) != 0; }

/// Counts an access to a tensor, and announces it: the kernel may access these bytes next (engine/reach.hpp).
void count_access(int id, const void* address, std::size_t bytes, Touch, Site);

FLASH_SIMT_ALWAYS_INLINE void count_read(int id, const void* address, std::size_t bytes, Site site) {
  count_access(id, address, bytes, Touch::read, site);
}
FLASH_SIMT_ALWAYS_INLINE void count_written(int id, const void* address, std::size_t bytes, Site site) {
  count_access(id, address, bytes, Touch::write, site);
}
inline void count_read_and_written(int id, const void* address, std::size_t bytes, Site site) {
  count_access(id, address, bytes, Touch::atomic, site);
}

/// Counts accesses to a tensor in global memory.
struct GlobalWatch {
  int id;
  Site site;
  FLASH_SIMT_ALWAYS_INLINE void read(const void* address, std::size_t bytes) const { count_read(id, address, bytes, site); }
  FLASH_SIMT_ALWAYS_INLINE void write(const void* address, std::size_t bytes) const { count_written(id, address, bytes, site); }
};

/// Atomics by a plain pointer come next, whose bytes are not counted: a loop that asks until something has changed.
void announce_atomic(const void* address, std::size_t bytes);

/// The address of an element of global memory. It becomes a plain pointer wherever one is wanted; atomics and asynchronous copies
/// take it as it is, to count the bytes and to see that a copy stays in the row.
template <class T>
struct GlobalPointer {
  T* data;
  int id;
  int left;   ///< elements from here to the end of the row
  Site site;  ///< where the address was taken

  operator T*() const {
    announce_atomic(data, sizeof(T));
    return data;
  }
  GlobalPointer operator+(int elements) const { return {data + elements, id, left - elements, site}; }
};

}  // namespace simt
}  // namespace flash
