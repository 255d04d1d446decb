// Copies of tensors whose rows are longer, by zeros, or shorter. Kernels from 04 on move rows 16
// bytes at a time. Rows of 59 elements begin where no such access can: launch_pass() gives the
// kernels copies in which rows are whole chunks (Variant::row_multiple).
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/warp.cuh"
#include "common/parts/kernel.cuh"

namespace flash {
namespace {

constexpr int COPY_THREADS = 256;
constexpr int COPY_ROWS = 4;  // per warp, so that enough reads are in flight
constexpr int COPY_BLOCK_ROWS = COPY_THREADS / WARP * COPY_ROWS;

/// To = From, COPY_ROWS rows per warp; zeros beyond the last column of From.  Grid: (rows /
/// COPY_BLOCK_ROWS) * B*heads.
template <class T>
__global__ void __launch_bounds__(COPY_THREADS)
    copy_rows_kernel(Tensor<const T> From, Tensor<T> To) {
  const int heads = To.batches * To.heads, head = blockIdx.x % heads;
  const int row0 = blockIdx.x / heads * COPY_BLOCK_ROWS + threadIdx.x / WARP * COPY_ROWS;
  const Matrix<const T> from = From.head(head / To.heads, head % To.heads);
  const Matrix<T> to = To.head(head / To.heads, head % To.heads);
  constexpr int steps = largest_head_dim / WARP;  // of the longest row
  T elements[COPY_ROWS][steps];
#pragma unroll
  for (int r = 0; r < COPY_ROWS; ++r) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {  // all reads are in flight before the first write
      const int col = threadIdx.x % WARP + step * WARP;
      elements[r][step] = T(0.0f);
      if (row0 + r < from.rows && col < from.cols && col < to.cols)
        elements[r][step] = from(row0 + r, col);
    }
  }
#pragma unroll
  for (int r = 0; r < COPY_ROWS; ++r) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int col = threadIdx.x % WARP + step * WARP;
      if (row0 + r < to.rows && col < to.cols) to(row0 + r, col) = elements[r][step];
    }
  }
}

template <class T>
void start_copy(const TensorRef& from, const TensorRef& to) {
  const auto heads = static_cast<unsigned>(to.shape[0] * to.shape[1]);
  launch("copy_rows",
         {dim3(blocks_for(static_cast<int>(to.shape[2]), COPY_BLOCK_ROWS) * heads),
          dim3(COPY_THREADS)},
         copy_rows_kernel<T>, view<const T>(from), view<T>(to));
}

}  // namespace

/// A CopyRows. add_stage() hands it to each variant of its backend.
#ifdef __CUDACC__
void copy_rows_gpu(const TensorRef& from, const TensorRef& to) {
#else
void copy_rows_cpu(const TensorRef& from, const TensorRef& to) {
#endif
  if (to.dtype == Dtype::fp32) return start_copy<float>(from, to);
  return to.dtype == Dtype::fp16 ? start_copy<__half>(from, to)
                                 : start_copy<__nv_bfloat16>(from, to);
}

}  // namespace flash
