// Views of shared memory for the CPU: checked against their extents and the block's dynamic shared memory; in counting runs every
// access is logged for bank conflicts. As with global memory, write `float x = S(i, j)`, not `auto`.
#pragma once

#include "common/machine/cpu/element_ref.hpp"
#include "common/machine/cpu/view.hpp"

namespace flash {
inline namespace simt {

/// In counting runs, logs one lane's access to `array` for the count of bank conflicts; tells who looks for races where it comes from.
void log_shared_access(Site, const void* array, const void* address, std::size_t bytes, bool write);

[[noreturn]] void fail_outside_shared_matrix(int row, int col, int width, int rows, int cols, Site);

/// Refuses an access that begins in the reach of dynamic shared memory and ends beyond what the launch provided.
void check_dynamic_shared(const void* address, std::size_t bytes, Site);

/// Logs accesses to one array in shared memory.
struct SharedWatch {
  const void* array;
  Site site;
  FLASH_SIMT_ALWAYS_INLINE void read(const void* address, std::size_t bytes) const {
    log_shared_access(site, array, address, bytes, false);
  }
  FLASH_SIMT_ALWAYS_INLINE void write(const void* address, std::size_t bytes) const {
    log_shared_access(site, array, address, bytes, true);
  }
};

/// A matrix [rows, cols] in shared memory, rows `stride` elements apart (stride > cols where rows are padded).
template <class T>
struct SharedMatrix {
  T* data;
  int rows, cols, stride;

  FLASH_SIMT_ALWAYS_INLINE Element<T, SharedWatch> operator()(int row, int col, Site site = Site::here()) const {
    return element(checked(row, col, sizeof(T), site), SharedWatch{data, site});
  }

  /// Several adjacent elements as one access: S.as<float4>(row, col) is S(row, col..col+3). Must be aligned to its size.
  template <class Wide>
  FLASH_SIMT_ALWAYS_INLINE auto as(int row, int col, Site site = Site::here()) const {
    using Access = std::conditional_t<std::is_const_v<T>, const Wide, Wide>;
    static_assert(sizeof(Wide) % sizeof(T) == 0, "a wide access holds whole elements");
    T* const address = checked(row, col, sizeof(Wide), site);
    if (!aligned_to<Wide>(address)) fail_misaligned("the shared matrix", address, sizeof(Wide), site);
    return element(reinterpret_cast<Access*>(address), SharedWatch{data, site});
  }

  template <class Index>
  auto operator[](Index) const {
    static_assert(!std::is_same_v<Index, Index>, "views take parentheses: write M(row, col), not M[row][col]");
    return data;
  }

  /// The address of an element, for atomics, ldmatrix and asynchronous copies.
  T* address(int row, int col, Site site = Site::here()) const { return checked(row, col, sizeof(T), site); }
  T* end() const { return data + rows * stride; }

  /// What lies `offset` bytes from the start: an element, padding included.
  T* at_byte(int offset, Site site = Site::here()) const {
    const int element = offset / static_cast<int>(sizeof(T));
    return checked(element / stride, element % stride, sizeof(T), site);
  }

  /// The same matrix, to be read only.
  template <class Const>
  requires(std::is_same_v<Const, const T> && !std::is_const_v<T>) operator SharedMatrix<Const>() const {
    return {data, rows, cols, stride};
  }

 private:
  T* checked(int row, int col, std::size_t bytes, Site site) const {
    const int width = static_cast<int>(bytes / sizeof(T));
    if (row < 0 || row >= rows || col < 0 || col > cols - width) [[unlikely]] {
      fail_outside_shared_matrix(row, col, width, rows, cols, site);
    }
    T* const address = data + row * stride + col;
    check_dynamic_shared(address, bytes, site);
    return address;
  }
};

}  // namespace simt
}  // namespace flash
