// 08 Tensor cores, backward, all steps: L and D of a tile of queries, and dS from P and dP. P is in
// weights.cuh, for Hopper in panels_backward.cuh.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"

namespace flash::tensor_cores {
namespace {

/// L and D of a tile's queries in shared memory: a row each, as prepare() fills them in HBM. With
/// its LInPowersOf2, row 0 has L log2(e).
template <bool LInPowersOf2 = false>
struct QueryStats {
  SharedMatrix<float> rows;

  __device__ float L(int query) const requires(!LInPowersOf2) { return rows(0, query); }
  __device__ float L_log2(int query) const requires LInPowersOf2 { return rows(0, query); }
  __device__ float D(int query) const { return rows(1, query); }
};

/// (8.13)  dP becomes dS = P o (dP - D), transposed: rows are keys.
template <class Scores, bool LInPowersOf2>
__device__ void softmax_backward(Scores& dPt, const Scores& Pt,
                                 const QueryStats<LInPowersOf2>& stats) {
  dPt.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });
  dPt.multiply(Pt);
}

}  // namespace
}  // namespace flash::tensor_cores
