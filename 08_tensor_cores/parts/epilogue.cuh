// 08 Tensor cores, forward, all steps: the epilogue (8.5), O and L of a warp's rows.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"

namespace flash::tensor_cores {
namespace {

/// (8.5)  O = O / l, and L = scale m + ln l in rows row0.. of L. l: over this lane's columns.
/// MayPrecede: row0 may be negative.
template <bool MayPrecede = false, int RowFragments, int ColFragments>
__device__ void normalize(Accumulators<RowFragments, ColFragments>& O,
                          const Rows<2 * RowFragments>& m, Rows<2 * RowFragments> l, float scale,
                          const Vector<float>& L, int row0) {
  const int lane = threadIdx.x % WARP;
  l = row_sum<Accumulators<RowFragments, ColFragments>>(l);
  l.each([&](float& sum, int r) {
    const int row = row0 + 8 * r + lane / 4;
    if (lane % 4 == 0 && row < L.size && (!MayPrecede || row >= 0))
      L(row) = sum == 0.0f ? -INFINITY : scale * m[r] + logf(sum);
    sum = sum == 0.0f ? 0.0f : 1.0f / sum;  // no visible key: O = 0
  });
  O.scale_rows(l);
}

/// (8.5)  The epilogue, in rows row0.. of `output` and L.
template <class T, int RowFragments, int ColFragments, class Tile>
__device__ void write_output(Accumulators<RowFragments, ColFragments>& O,
                             const Rows<2 * RowFragments>& m, const Rows<2 * RowFragments>& l,
                             float scale, const Matrix<T>& output, const Vector<float>& L, int row0,
                             const Tile& staging) {
  normalize(O, m, l, scale, L, row0);
  write_rows(output, row0, O, staging);
}

/// O = 0 and L = -inf, in the Br rows from row0 on, which see no key.
template <class Shape, class T>
__device__ void write_empty(const Matrix<T>& O, const Vector<float>& L, int row0) {
  const int rows = min(Shape::Br, O.rows - row0), chunks = O.cols / 8;
  for (int index = threadIdx.x; index < rows * chunks; index += Shape::THREADS) {
    O.template as<uint4>(row0 + index / chunks, index % chunks * 8) = make_uint4(0, 0, 0, 0);
  }
  for (int row = threadIdx.x; row < rows; row += Shape::THREADS) L(row0 + row) = -INFINITY;
}

}  // namespace
}  // namespace flash::tensor_cores
