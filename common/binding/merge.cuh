// The merge of two partial results of attention, for keys in several places: common/binding/ring.py.
//
// A row's keys are cut into two parts a and b. Attention over each part gives an output and the log-sum-exp of its scores,
// (O_a, L_a) and (O_b, L_b). Of the whole row
//   L = ln(exp(L_a) + exp(L_b)),   O = exp(L_a - L) O_a + exp(L_b - L) O_b
// which is the merge (3.4) of the pairs (m, l), with l = 1 and m = L, and with O as its third component. A part whose keys the
// row does not see has L = -inf and O = 0, and changes nothing.
//
// O and L of the parts so far stay in place, in fp32, because rounding O to 16 bits after each merge would cost digits.
// HBM: reads O, L and the new part once, writes O and L.
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/warp.cuh"
#include "common/parts/kernel.cuh"

namespace flash {
namespace {

constexpr int MERGE_ROWS = 8;  // per block, one warp each

/// Grid: (blocks of rows, H, B). Block: (lanes, rows).
template <class Part>
__global__ void merge_kernel(Tensor<float> O_all, Tensor<float> L_all, Tensor<const Part> part_O_all,
                             Tensor<const float> part_L_all) {
  const int b = blockIdx.z, h = blockIdx.y;
  const int i = blockIdx.x * MERGE_ROWS + threadIdx.y;
  const Matrix<float> O = O_all.head(b, h);
  const Matrix<const Part> part_O = part_O_all.head(b, h);
  if (i >= O.rows) return;  // the whole warp leaves

  const Vector<float> L = L_all.head_vector(b, h);
  const float L_a = L(i), L_b = part_L_all.head_vector(b, h)(i);
  const float m = fmaxf(L_a, L_b);
  const float shift = m == -INFINITY ? 0.0f : m;  // neither part has a key that the row sees: exp(-inf - 0) = 0, not NaN
  const float l_a = expf(L_a - shift), l_b = expf(L_b - shift);
  const float l = l_a + l_b;
  const float weight_a = l == 0.0f ? 0.0f : l_a / l, weight_b = l == 0.0f ? 0.0f : l_b / l;

  for (int c = threadIdx.x; c < O.cols; c += WARP) {
    O(i, c) = weight_a * O(i, c) + weight_b * static_cast<float>(part_O(i, c));
  }
  __syncwarp();  // write after read: every lane has read L(i)
  if (threadIdx.x == 0) L(i) = m + logf(l);
}

template <class Part>
void start_merge(const Attention& a) {
  launch("merge",
         {dim3(blocks_for(static_cast<int>(a.O.shape[2]), MERGE_ROWS), static_cast<unsigned>(a.O.shape[1]),
               static_cast<unsigned>(a.O.shape[0])),
          dim3(WARP, MERGE_ROWS)},
         merge_kernel<Part>, view<float>(a.O), view<float>(a.L), view<const Part>(a.workspace("part_O")),
         view<const float>(a.workspace("part_L")));
}

}  // namespace

#ifdef __CUDACC__
void merge_on_gpu(const Attention& a) {
#else
void merge_on_cpu(const Attention& a) {
#endif
  switch (a.workspace("part_O").dtype) {
    case Dtype::fp32:
      return start_merge<float>(a);
    case Dtype::fp16:
      return start_merge<__half>(a);
    case Dtype::bf16:
      return start_merge<__nv_bfloat16>(a);
  }
}
}  // namespace flash
