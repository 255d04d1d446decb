// The merge of two partial results of attention, for keys in several places: common/binding/ring.py.
//
// The part computed so far and a new one are merged by (K.3), as the parts of a decode step are (common/device/split_keys.cuh).
//
// O and L of the part computed so far are in fp32 and stay in place: rounding them to 16 bits after each of many merges would
// cost digits.  HBM: reads O, L and the new part once, writes O and L.
#pragma once

#include "common/device/device.cuh"
#include "common/device/float16.cuh"
#include "common/device/split_keys.cuh"

namespace flash {
namespace {

constexpr int MERGE_ROWS = 8;  // per block, one warp each

/// Grid: (blocks of rows, H, B). Block: (lanes, rows).
template <class T>
__global__ void merge_kernel(Tensor<float> O_all, Tensor<float> L_all, Tensor<const T> part_O_all,
                             Tensor<const float> part_L_all) {
  const int b = blockIdx.z, h = blockIdx.y;
  const int i = blockIdx.x * MERGE_ROWS + threadIdx.y;
  const Matrix<float> O = O_all.head(b, h);
  const Matrix<const T> part_O = part_O_all.head(b, h);
  if (i >= O.rows) return;  // the whole warp leaves

  const Vector<float> L = L_all.head_vector(b, h);
  const float L_a = L(i), L_b = part_L_all.head_vector(b, h)(i);
  __syncwarp();  // write after read: every lane has read L(i)
  for (int c = threadIdx.x; c < O.cols; c += WARP) {
    Merged merged;
    merged.add<2>({L_a, L_b}, {O(i, c), static_cast<float>(part_O(i, c))});
    O(i, c) = merged.O();
    if (c == 0) L(i) = merged.L();
  }
}

template <class T>
void start_merge(const Attention& a) {
  launch("merge",
         {dim3(blocks_for(static_cast<int>(a.O.shape[2]), MERGE_ROWS), static_cast<unsigned>(a.O.shape[1]),
               static_cast<unsigned>(a.O.shape[0])),
          dim3(WARP, MERGE_ROWS)},
         merge_kernel<T>, view<float>(a.O), view<float>(a.L), view<const T>(a.workspace("part_O")),
         view<const float>(a.workspace("part_L")));
}

void merge(const Attention& a) {
  switch (a.workspace("part_O").dtype) {
    case Dtype::fp32:
      return start_merge<float>(a);
    case Dtype::fp16:
      return start_merge<__half>(a);
    case Dtype::bf16:
      return start_merge<__nv_bfloat16>(a);
  }
}

const Variant variant{.name = "merge", .idea = "two parts of the keys, by their log-sum-exp", .forward = merge};

}  // namespace
}  // namespace flash
