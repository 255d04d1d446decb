// The merge of two partial results of attention, for keys in several places: common/binding/ring.py.
//
// A row's keys are cut into two parts a and b. Attention over each part gives an output and the log-sum-exp of its scores,
// (O_a, L_a) and (O_b, L_b). Of the whole row
//   L = ln(exp(L_a) + exp(L_b)),   O = exp(L_a - L) O_a + exp(L_b - L) O_b
// which is the merge (3.4) of the pairs (m, l), with l = 1 and m = L, and with O as its third component. A part whose keys the
// row does not see has L = -inf and O = 0, and changes nothing.
//
// O and L of the parts so far stay in place. If many merges follow, O is in fp32, because rounding it to 16 bits after each of them
// would cost digits. If this is the only merge, O may have the part's own type: it is then rounded once, as a whole row would be.
// HBM: reads O, L and the new part once, writes O and L.
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/warp.cuh"
#include "common/parts/kernel.cuh"

namespace flash {
namespace {

constexpr int MERGE_ROWS = 8;  // per block, one warp each
constexpr int MERGE_COLS = 4;  // that a lane loads before it stores any

/// Grid: (blocks of rows, H, B). Block: (lanes, rows).
template <class Whole, class Part>
__global__ void merge_kernel(Tensor<Whole> O_all, Tensor<float> L_all, Tensor<const Part> part_O_all,
                             Tensor<const float> part_L_all) {
  const int b = blockIdx.z, h = blockIdx.y;
  const int i = blockIdx.x * MERGE_ROWS + threadIdx.y;
  const Matrix<Whole> O = O_all.head(b, h);
  const Matrix<const Part> part_O = part_O_all.head(b, h);
  if (i >= O.rows) return;  // the whole warp leaves

  const Vector<float> L = L_all.head_vector(b, h);
  const float L_a = L(i), L_b = part_L_all.head_vector(b, h)(i);
  const float m = fmaxf(L_a, L_b);
  const float shift = m == -INFINITY ? 0.0f : m;  // neither part has a key that the row sees: exp(-inf - 0) = 0, not NaN
  const float l_a = expf(L_a - shift), l_b = expf(L_b - shift);
  const float l = l_a + l_b;
  const float weight_a = l == 0.0f ? 0.0f : l_a / l, weight_b = l == 0.0f ? 0.0f : l_b / l;

  // In 16 bits a warp's store covers half of a line of 128 bytes. If it came before the load of the other half, in bf16 the kernel
  // would take 15 times as long (H100).
  for (int first = threadIdx.x; first < O.cols; first += MERGE_COLS * WARP) {
    float merged[MERGE_COLS];
#pragma unroll
    for (int n = 0; n < MERGE_COLS; ++n) {
      const int c = first + n * WARP;
      if (c >= O.cols) continue;
      const Whole so_far = O(i, c);
      merged[n] = weight_a * static_cast<float>(so_far) + weight_b * static_cast<float>(part_O(i, c));
    }
#pragma unroll
    for (int n = 0; n < MERGE_COLS; ++n) {
      if (first + n * WARP < O.cols) O(i, first + n * WARP) = static_cast<Whole>(merged[n]);
    }
  }
  __syncwarp();  // write after read: every lane has read L(i)
  if (threadIdx.x == 0) L(i) = m + logf(l);
}

template <class Whole, class Part>
void start_merge(const Attention& a) {
  launch("merge",
         {dim3(blocks_for(static_cast<int>(a.O.shape[2]), MERGE_ROWS), static_cast<unsigned>(a.O.shape[1]),
               static_cast<unsigned>(a.O.shape[0])),
          dim3(WARP, MERGE_ROWS)},
         merge_kernel<Whole, Part>, view<Whole>(a.O), view<float>(a.L), view<const Part>(a.workspace("part_O")),
         view<const float>(a.workspace("part_L")));
}

void merge(const Attention& a) {
  const bool wide = a.O.dtype == Dtype::fp32;
  switch (a.workspace("part_O").dtype) {
    case Dtype::fp32:
      return start_merge<float, float>(a);
    case Dtype::fp16:
      return wide ? start_merge<float, __half>(a) : start_merge<__half, __half>(a);
    case Dtype::bf16:
      return wide ? start_merge<float, __nv_bfloat16>(a) : start_merge<__nv_bfloat16, __nv_bfloat16>(a);
  }
}

const Variant variant{.name = "merge", .idea = "two parts of the keys, by their log-sum-exp", .forward = merge};

}  // namespace
}  // namespace flash
