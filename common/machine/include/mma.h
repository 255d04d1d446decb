// WMMA: fragments of 16 x 16 x 16 products on the mma instructions of a warp. Each lane loads and stores the elements that it holds.
#pragma once

#include <cuda_bf16.h>

#include "common/machine/isa/fragments.hpp"

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "WMMA is simulated for 16 x 16 x 16");
  static_assert(sizeof(T) == 2 || std::is_same_v<Use, accumulator>, "WMMA is simulated for fp16 and bf16");
  static constexpr int num_elements = 8;
  typedef T element_type;
  T x[num_elements];

  /// Row and column of an element in the whole matrix, and the register and half of a register where mma wants it.
  static constexpr int row(int lane, int i) {
    if constexpr (std::is_same_v<Use, matrix_b>) return flash::fragment::b_row(lane, i / 2 % 2, i % 2);
    if constexpr (std::is_same_v<Use, matrix_a>) return flash::fragment::a_row(lane, i / 2);
    return flash::fragment::c_row(lane, i % 4);
  }
  static constexpr int col(int lane, int i) {
    if constexpr (std::is_same_v<Use, matrix_b>) return flash::fragment::b_col(lane) + 8 * (i / 4);
    if constexpr (std::is_same_v<Use, matrix_a>) return flash::fragment::a_col(lane, i / 2, i % 2);
    return flash::fragment::c_col(lane, i % 4) + 8 * (i / 4);
  }
};

template <class Use, class T, class Layout, class Value>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& to, const Value& value) {
  for (T& each : to.x) each = static_cast<T>(static_cast<float>(value));
}
template <class Fragment, class T>
FLASH_INLINE void flash_load(Fragment& to, const T* from, unsigned stride, bool by_rows, flash::Site site) {
  __syncwarp(0xffffffffu, site);
  const int lane = static_cast<int>(flash::plain::special_laneid());
  for (int i = 0; i < 8; ++i) {
    const auto row = static_cast<unsigned>(to.row(lane, i)), col = static_cast<unsigned>(to.col(lane, i));
    to.x[i] = by_rows ? from[row * stride + col] : from[col * stride + row];
  }
}
template <class Use, class T, class Layout>
FLASH_INLINE void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride, flash::Site site = flash::Site::here()) {
  flash_load(to, from, stride, std::is_same_v<Layout, row_major>, site);
}
template <class T>
FLASH_INLINE void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& to, const T* from, unsigned stride, layout_t layout,
                                   flash::Site site = flash::Site::here()) {
  flash_load(to, from, stride, layout == mem_row_major, site);
}
template <class T>
FLASH_INLINE void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& from, unsigned stride, layout_t layout,
                                    flash::Site site = flash::Site::here()) {
  __syncwarp(0xffffffffu, site);
  const int lane = static_cast<int>(flash::plain::special_laneid());
  for (int i = 0; i < 8; ++i) {
    const auto row = static_cast<unsigned>(from.row(lane, i)), col = static_cast<unsigned>(from.col(lane, i));
    to[layout == mem_row_major ? row * stride + col : col * stride + row] = from.x[i];
  }
}
template <class C, class A, class B, class T, class D>
void mma_sync(fragment<accumulator, 16, 16, 16, D>& d, const fragment<matrix_a, 16, 16, 16, T, A>& a, const fragment<matrix_b, 16, 16, 16, T, B>& b,
              const fragment<accumulator, 16, 16, 16, C>& c, flash::Site site) {
  unsigned of_a[4], of_b[2];
  __builtin_memcpy(of_a, a.x, sizeof of_a);
  for (int half = 0; half < 2; ++half) {
    float sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = c.x[4 * half + i];
    __builtin_memcpy(of_b, b.x + 4 * half, sizeof of_b);
    if constexpr (std::is_same_v<T, __half>) flash::mma_m16n8k16_f16(sums, of_a, of_b, sums, site);
    else flash::mma_m16n8k16_bf16(sums, of_a, of_b, sums, site);
    for (int i = 0; i < 4; ++i) d.x[4 * half + i] = sums[i];
  }
}
template <class D, class FA, class FB, class C>
void mma_sync(D& d, const FA& a, const FB& b, const C& c, flash::Site site = flash::Site::here()) {
  mma_sync<typename C::element_type>(d, a, b, c, site);
}

}  // namespace nvcuda::wmma
