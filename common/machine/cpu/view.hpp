// Views of global memory for the CPU: the twins of common/machine/gpu/view.cuh. Every access is checked against the extents and
// counted by tensor, each thread's bytes by themselves.
//
// An element of a view of const values is read at once. Otherwise M(row, col) is a Reference, since a read and a write are counted apart:
// it reads when it is converted to the element type and writes when it is assigned to. Write `float x = M(i, j)`, not `auto`.
#pragma once

#include "common/machine/cpu/element_ref.hpp"
#include "common/machine/types.hpp"

#include <type_traits>

namespace flash {
inline namespace simt {

/// Which tensor a view belongs to: what messages call it, and the id that counts its bytes.
struct Origin {
  const char* name = "";
  int id = 0;
  int b = -1, h = -1;  ///< batch and head; -1 in a view that does not come from a tensor
  int row = 0;         ///< which row of the matrix is the view's first
};

/// "(3, 5)", or "(3, 4..7)" for `width` columns.
std::string element_words(int row, int col, int width);

// Where the extents are left; each throws KernelError.
[[noreturn]] void fail_outside_matrix(const Origin&, int row, int col, int width, int rows, int cols, Site);
[[noreturn]] void fail_outside_vector(const Origin&, int index, int size, Site);
[[noreturn]] void fail_outside_tensor(const Origin&, int b, int h, int batches, int heads, Site);
[[noreturn]] void fail_misaligned(const char* what, const void* address, std::size_t alignment, Site);

template <class T>
bool aligned_to(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(T) == 0;
}

/// An axis of stride 0 repeats one entry for every index, such as a bias that all heads share. Only inputs do that.
template <class T>
constexpr bool broadcast(std::int64_t stride) {
  return std::is_const_v<T> && stride == 0;
}

/// A matrix [rows, cols] in global memory. Columns are adjacent; rows lie row_stride elements apart.
template <class T>
struct Matrix {
  T* data;
  int rows, cols;
  std::int64_t row_stride;
  Origin origin = {};

  FLASH_SIMT_ALWAYS_INLINE Element<T, GlobalWatch> operator()(int row, int col, Site site = Site::here()) const {
    return element(checked(row, col, 1, site), GlobalWatch{origin.id, site});
  }

  /// Several adjacent elements as one access: K.as<float4>(row, col) is K(row, col..col+3). Must be aligned to its size.
  template <class Wide>
  FLASH_SIMT_ALWAYS_INLINE auto as(int row, int col, Site site = Site::here()) const {
    using Access = std::conditional_t<std::is_const_v<T>, const Wide, Wide>;
    static_assert(sizeof(Wide) % sizeof(T) == 0, "a wide access holds whole elements");
    T* const address = checked(row, col, static_cast<int>(sizeof(Wide) / sizeof(T)), site);
    if (!aligned_to<Wide>(address)) fail_misaligned(origin.name, address, sizeof(Wide), site);
    return element(reinterpret_cast<Access*>(address), GlobalWatch{origin.id, site});
  }

  /// The address of an element, for atomics and asynchronous copies.
  GlobalPointer<T> address(int row, int col, Site site = Site::here()) const {
    return {checked(row, col, 1, site), origin.id, cols - col, site};
  }

  template <class Index>
  auto operator[](Index) const {
    static_assert(!std::is_same_v<Index, Index>, "views take parentheses: write M(row, col), not M[row][col]");
    return data;
  }

  /// The matrix without its first n rows. None may be left: then there is nothing to read.
  Matrix below(int n) const {
    Matrix rest{data + n * row_stride, rows - n, cols, row_stride, origin};
    rest.origin.row += n;
    return rest;
  }

 private:
  T* checked(int row, int col, int width, Site site) const {
    const bool row_exists = static_cast<unsigned>(row) < static_cast<unsigned>(rows) || broadcast<T>(row_stride);
    if (!row_exists || col < 0 || col > cols - width) [[unlikely]] {
      fail_outside_matrix(origin, row, col, width, rows, cols, site);
    }
    return data + row * row_stride + col;
  }
};

/// One number per row, such as L, m, l or D: [size] in global memory.
template <class T>
struct Vector {
  T* data;
  int size;
  std::int64_t stride;
  Origin origin = {};

  FLASH_SIMT_ALWAYS_INLINE Element<T, GlobalWatch> operator()(int index, Site site = Site::here()) const {
    return element(checked(index, site), GlobalWatch{origin.id, site});
  }

  GlobalPointer<T> address(int index, Site site = Site::here()) const { return {checked(index, site), origin.id, 1, site}; }

  template <class Index>
  auto operator[](Index) const {
    static_assert(!std::is_same_v<Index, Index>, "views take parentheses: write v(i), not v[i]");
    return *data;
  }

 private:
  T* checked(int index, Site site) const {
    if ((index < 0 || index >= size) && !broadcast<T>(stride)) [[unlikely]] {
      fail_outside_vector(origin, index, size, site);
    }
    return data + index * stride;
  }
};

/// A tensor [B, H, N, d] in global memory, or [B, H, N, 1] with one number per row.
template <class T>
struct Tensor {
  T* data;
  int batches, heads, rows, cols;
  std::int64_t batch_stride, head_stride, row_stride;
  Origin origin = {};

  /// The matrix [N, d] of one batch and head.
  Matrix<T> head(int b, int h, Site site = Site::here()) const {
    return {start(b, h, site), rows, cols, row_stride, {origin.name, origin.id, b, h, origin.row}};
  }

  /// The vector [N] of one batch and head, for a tensor [B, H, N, 1].
  Vector<T> head_vector(int b, int h, Site site = Site::here()) const {
    return {start(b, h, site), rows, row_stride, {origin.name, origin.id, b, h, origin.row}};
  }

  /// The same of a head that is counted through all batches: n = b * heads + h.
  Matrix<T> head(int n, Site site = Site::here()) const { return head(n / heads, n % heads, site); }
  Vector<T> head_vector(int n, Site site = Site::here()) const { return head_vector(n / heads, n % heads, site); }

  /// Leaves `count` rows, from row `first` on. None may be left: then there is nothing to read.
  void narrow(int first, int count, Site site = Site::here()) {
    if (first < 0 || count < 0 || first > rows - count) [[unlikely]]
      fail_outside_matrix(origin, first, 0, 1, rows, cols, site);
    data += first * row_stride;
    rows = count;
    origin.row += first;
  }

 private:
  T* start(int b, int h, Site site) const {
    const bool b_exists = (b >= 0 && b < batches) || broadcast<T>(batch_stride);
    const bool h_exists = (h >= 0 && h < heads) || broadcast<T>(head_stride);
    if (!b_exists || !h_exists) [[unlikely]]
      fail_outside_tensor(origin, b, h, batches, heads, site);
    return data + b * batch_stride + h * head_stride;
  }
};

/// The id under which the bytes of tensors of this name are counted.
int traffic_id(const char* name);
/// The same; from now on messages know the tensor's elements by their addresses.
int traffic_id(const TensorRef&);

/// The typed view of a tensor. The caller has made sure that T is its dtype.
template <class T>
Tensor<T> view(const TensorRef& t) {
  return {static_cast<T*>(t.data),
          static_cast<int>(t.shape[0]),
          static_cast<int>(t.shape[1]),
          static_cast<int>(t.shape[2]),
          static_cast<int>(t.shape[3]),
          t.stride[0],
          t.stride[1],
          t.stride[2],
          {t.name, traffic_id(t)}};
}

}  // namespace simt
}  // namespace flash
