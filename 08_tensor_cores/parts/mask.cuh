// 08 Tensor cores, all steps but Hopper backward, which has mask_transposed(): the mask of a warp's
// scores.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"

namespace flash::tensor_cores {
namespace {

/// Pairs that the causal mask hides, and keys beyond the last, score -inf. S begins at query i0 and
/// key j0; transposed, its rows are keys. Only tiles at the edge have work to do: in the others the
/// first query, which sees the fewest keys, sees them all.
template <bool Transposed = false, class Scores, class SomeProblem>
__device__ void mask(Scores& S, const SomeProblem& problem, int i0, int j0) {
  // opaque(): no register keeps what few tiles need from one tile to the next.
  i0 = Transposed ? i0 : opaque(i0), j0 = Transposed ? opaque(j0) : j0;
  if (j0 + (Transposed ? Scores::HEIGHT : Scores::WIDTH) <= problem.visible_keys(i0)) return;
  S.each_at([&](float& s, int row, int col) {
    const int i = i0 + (Transposed ? col : row), j = j0 + (Transposed ? row : col);
    if (j >= problem.visible_keys(i)) s = -INFINITY;
  });
}

}  // namespace
}  // namespace flash::tensor_cores
