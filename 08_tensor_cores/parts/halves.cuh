// 08 Tensor cores, backward, from step 3 on: two halves of the warps have the same rows. Half 0
// owns S^T, P^T and dV, half 1 dP^T, dS^T and dK; P^T goes from one to the other.
#pragma once

#include "08_tensor_cores/parts/add_to_dQ.cuh"

namespace flash::tensor_cores {
namespace {

/// The tile that this thread's half works on. Only the pointer is selected: both tiles have the
/// same size.
template <class T, int Width>
__device__ Tile<T, Width> of_half(bool first_half, const Tile<T, Width>& first,
                                  const Tile<T, Width>& second) {
  return {first_half ? first.elements.data : second.elements.data, first.elements.rows};
}

/// P^T goes from half 0 to half 1 in lane order, in the memory of the warp's rows of a tile: a lane
/// stores its four registers of each 16 x 16 block, and the same lane of half 1 reads them back, as
/// one 16-byte access without bank conflicts. Row order, with 4-byte accesses, costs 2 % at d = 64.
template <class T, int Width, class Left>
__device__ void store_in_lane_order(const Tile<T, Width>& Pt_rows, const Left& Pt) {
  constexpr int count = Left::ROW_FRAGMENTS * Left::DEPTH;
  const SharedMatrix<T> blocks{Pt_rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    unsigned block[4];
    Pt.load(block, index / Left::DEPTH, index % Left::DEPTH);
    blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)) =
        make_uint4(block[0], block[1], block[2], block[3]);
  }
}

/// (8.13)  As softmax_backward() of step 1, dP^T becomes dS^T = P^T o (dP^T - D), with the P^T that
/// store_in_lane_order() has stored, rounded as for dV.
template <class T, int Width, int RowFragments, int ColFragments>
__device__ void softmax_backward(Accumulators<RowFragments, ColFragments>& dPt,
                                 const Tile<T, Width>& Pt_rows, const QueryStats<>& stats) {
  dPt.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });
  constexpr int depth = ColFragments / 2, count = RowFragments * depth;
  const SharedMatrix<const T> blocks{Pt_rows.elements.data, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    multiply_block<T>(dPt, index / depth, index % depth,
                      blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)));
  }
}

}  // namespace
}  // namespace flash::tensor_cores
