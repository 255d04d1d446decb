// 08 Tensor cores, backward, all steps: L and D of a tile of queries, and dS from P and dP. P is in
// weights.cuh, for Hopper in panels_backward.cuh.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"

namespace flash::tensor_cores {
namespace {

/// L and D of a tile's queries in shared memory: a row each, as prepare() fills them in HBM. Row 0
/// has L, or with its LInPowersOf2 L log2(e): a kernel reads one of the two, by that name.
struct QueryStats {
  SharedMatrix<float> rows;

  __device__ float L(int query) const { return rows(0, query); }
  __device__ float L_log2(int query) const { return rows(0, query); }
  __device__ float D(int query) const { return rows(1, query); }
};

/// (8.13)  dP becomes dS = P o (dP - D), transposed: rows are keys.
template <class Scores>
__device__ void softmax_backward(Scores& dPt, const Scores& Pt, const QueryStats& stats) {
  dPt.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });
  dPt.multiply(Pt);
}

}  // namespace
}  // namespace flash::tensor_cores
