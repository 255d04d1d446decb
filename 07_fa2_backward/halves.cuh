// 07 FlashAttention-2, backward, from step 2 on: a block has 8 warps in two halves that do the same
// work on different matrices, because the products form pairs that share no operand:
//   half 0: S = Q K^T, then P;   dV += P^T dO      half 1: dP = dO V^T, then dS;   dK += dS^T Q
// and both compute dQ = dS K, from column dQ_col0 on. The 4 warps of a half divide the rows.
#pragma once

#include "07_fa2_backward/parts.cuh"

namespace flash::fa2_backward {
namespace {

/// The tile that this thread's half of the block works on. Only the pointer is selected: both have
/// the same size.
__device__ inline SharedMatrix<float> of_half(bool first_half, const SharedMatrix<float>& first,
                                              const SharedMatrix<float>& second) {
  return {first_half ? first.data : second.data, first.rows, first.cols, first.stride};
}

}  // namespace
}  // namespace flash::fa2_backward
