// Views of tensors in GPU memory that read like the math: K(row, col). Under nvcc each access is the plain pointer access
// that it looks like; the twin in common/machine/cpu/view.hpp checks and counts it.
#pragma once

#include "common/machine/types.hpp"

#include <cstdint>
#include <type_traits>

namespace flash {
inline namespace gpu {

/// Wide, const where T is.
template <class Wide, class T>
using SameConst = std::conditional_t<std::is_const_v<T>, const Wide, Wide>;

/// A matrix [rows, cols] in global memory. Columns are adjacent; rows lie row_stride elements apart.
template <class T>
struct Matrix {
  T* data;
  int rows, cols;
  std::int64_t row_stride;

  __device__ T& operator()(int row, int col) const { return data[row * row_stride + col]; }

  /// Several adjacent elements as one access: K.as<float4>(row, col) is K(row, col..col+3). Must be aligned to its size.
  /// Standard C++ leaves it undefined (type punning); in CUDA it is the usual way, and the CPU build passes
  /// -fno-strict-aliasing.
  template <class Wide>
  __device__ SameConst<Wide, T>& as(int row, int col) const {
    return *reinterpret_cast<SameConst<Wide, T>*>(data + row * row_stride + col);
  }

  /// The address of an element, for atomics and asynchronous copies.
  __device__ T* address(int row, int col) const { return data + row * row_stride + col; }

  /// The matrix without its first n rows. Going down by a constant number of rows adds a constant to an address.
  __device__ Matrix below(int n) const { return {data + n * row_stride, rows - n, cols, row_stride}; }
};

/// One number per row, such as L, m, l or D: [size] in global memory.
template <class T>
struct Vector {
  T* data;
  int size;
  std::int64_t stride;

  __device__ T& operator()(int index) const { return data[index * stride]; }

  __device__ T* address(int index) const { return data + index * stride; }
};

/// A tensor [B, H, N, d] in global memory, or [B, H, N, 1] with one number per row.
template <class T>
struct Tensor {
  T* data;
  int batches, heads, rows, cols;
  std::int64_t batch_stride, head_stride, row_stride;

  /// The matrix [N, d] of one batch and head.
  __device__ Matrix<T> head(int b, int h) const { return {data + b * batch_stride + h * head_stride, rows, cols, row_stride}; }

  /// The vector [N] of one batch and head, for a tensor [B, H, N, 1].
  __device__ Vector<T> head_vector(int b, int h) const { return {data + b * batch_stride + h * head_stride, rows, row_stride}; }

  /// The same of a head that is counted through all batches: n = b * heads + h.
  __device__ Matrix<T> head(int n) const { return head(n / heads, n % heads); }
  __device__ Vector<T> head_vector(int n) const { return head_vector(n / heads, n % heads); }

  /// Leaves `count` rows, from row `first` on.
  __device__ void narrow(int first, int count) {
    data += first * row_stride;
    rows = count;
  }
};

/// A matrix [rows, cols] in shared memory, rows `stride` elements apart (stride > cols where rows are padded). Plain arrays do
/// wherever they are enough; this view adds the simulator's bounds check and its count of bank conflicts.
template <class T>
struct SharedMatrix {
  T* data;
  int rows, cols, stride;

  __device__ T& operator()(int row, int col) const { return data[row * stride + col]; }

  template <class Wide>
  __device__ SameConst<Wide, T>& as(int row, int col) const {
    return *reinterpret_cast<SameConst<Wide, T>*>(data + row * stride + col);
  }

  __device__ T* address(int row, int col) const { return data + row * stride + col; }
  /// Where the next matrix in shared memory begins.
  __device__ T* end() const { return data + rows * stride; }

  /// What lies `offset` bytes from the start.
  __device__ T* at_byte(int offset) const {
    return reinterpret_cast<T*>(reinterpret_cast<SameConst<unsigned char, T>*>(data) + offset);
  }

  /// The same matrix, to be read only.
  template <class Const>
  requires(std::is_same_v<Const, const T> && !std::is_const_v<T>) __device__ operator SharedMatrix<Const>() const {
    return {data, rows, cols, stride};
  }
};

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
          t.stride[2]};
}

}  // namespace gpu
}  // namespace flash
