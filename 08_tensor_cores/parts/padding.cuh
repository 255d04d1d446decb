// 08 Tensor cores: rows without 16-byte alignment. With d = 59, for example, a row of 2-byte elements starts at an address from
// which no 16-byte copy can start. Reading element by element in every tile would cost more than the products, so Q, K and V
// are first copied once to a workspace where zeros pad their rows to whole chunks.
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/warp.cuh"
#include "common/parts/kernel.cuh"

#include <algorithm>

namespace flash::tensor_cores {
namespace {

constexpr int PAD_THREADS = 256, PAD_ROWS = 4;  // rows per warp, so that enough reads are in flight
constexpr int PAD_BLOCK_ROWS = PAD_THREADS / WARP * PAD_ROWS;

/// To = From, PAD_ROWS rows per warp; zeros beyond the last column of From.  Grid: (rows / PAD_BLOCK_ROWS) * B*heads.
template <class T>
__global__ void __launch_bounds__(PAD_THREADS) pad_kernel(Tensor<const T> From, Tensor<T> To) {
  const int heads = To.batches * To.heads;
  const int head = blockIdx.x % heads;
  const int row0 = blockIdx.x / heads * PAD_BLOCK_ROWS + threadIdx.x / WARP * PAD_ROWS;
  const Matrix<const T> from = From.head(head / To.heads, head % To.heads);
  const Matrix<T> to = To.head(head / To.heads, head % To.heads);
  constexpr int steps = 256 / WARP;  // of the longest row
  T elements[PAD_ROWS][steps];
#pragma unroll
  for (int r = 0; r < PAD_ROWS; ++r) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {  // all reads are in flight before the first write
      const int col = threadIdx.x % WARP + step * WARP;
      elements[r][step] = T(0.0f);
      if (row0 + r < from.rows && col < from.cols) elements[r][step] = from(row0 + r, col);
    }
  }
#pragma unroll
  for (int r = 0; r < PAD_ROWS; ++r) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int col = threadIdx.x % WARP + step * WARP;
      if (row0 + r < to.rows && col < to.cols) to(row0 + r, col) = elements[r][step];
    }
  }
}

/// Whether rows of Q, K, V, O and their gradients are whole chunks of 16 bytes. Their strides are multiples of d, and the
/// binding refuses tensors that begin elsewhere, so that all rows are then 16-byte aligned.
inline bool aligned(const Problem& p) { return p.d % 8 == 0; }

/// The workspace that holds a padded copy of a tensor [B, heads, rows, d].
inline WorkspaceSpec padded_copy(const char* name, const Problem& p, int heads, int rows) {
  return {name, {p.B, heads, rows, (p.d + 7) / 8 * 8}, p.dtype};
}

/// The padded copies of Q, K and V.
inline std::vector<WorkspaceSpec> padded_operands(const Problem& p, Pass) {
  if (aligned(p)) return {};
  return {padded_copy("Q_padded", p, p.H, p.Nq), padded_copy("K_padded", p, p.Hkv, p.Nk),
          padded_copy("V_padded", p, p.Hkv, p.Nk)};
}

/// `t` if its rows are aligned, otherwise its copy in the workspace of that name, which this function makes.
template <class T>
const TensorRef& aligned_tensor(const Attention& a, const TensorRef& t, const char* name) {
  if (aligned(a.problem)) return t;
  const TensorRef& copy = a.workspace(name);
  const auto heads = static_cast<unsigned>(copy.shape[0] * copy.shape[1]);
  launch("pad", {dim3(blocks_for(static_cast<int>(copy.shape[2]), PAD_BLOCK_ROWS) * heads), dim3(PAD_THREADS)}, pad_kernel<T>,
         view<const T>(t), view<T>(copy));
  return copy;
}
template <class T>
Tensor<const T> pad_if_unaligned(const Attention& a, const TensorRef& t, const char* name) {
  return view<const T>(aligned_tensor<T>(a, t, name));
}

/// `t` if its rows are aligned, otherwise the copy that an earlier launch of this run has made.
template <class T>
Tensor<const T> padded_before(const Attention& a, const TensorRef& t, const char* name) {
  return view<const T>(aligned(a.problem) ? t : a.workspace(name));
}

}  // namespace
}  // namespace flash::tensor_cores
