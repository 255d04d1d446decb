// 08 Tensor cores, Hopper forward, from step 5 on: the softmax of a warp that takes a maximum only
// when P would overflow.
#pragma once

#include "08_tensor_cores/parts/mask.cuh"
#include "08_tensor_cores/parts/softmax.cuh"

namespace flash::tensor_cores {
namespace {

constexpr int BACKOFF_TILES = 8;  // that take the maximum at once after one that was recomputed

/// The softmax of a warp's 16 rows of S. Each warp decides for itself how S of tile j becomes P:
///   exact   j >= lazy_end, and first    mask, maximum; O and l are rescaled
///   lazy    j < lazy_end, P fits        m stays, nothing is rescaled
///   repair  j < lazy_end, P too large   S is gone: multiply again with mma.sync, then exact, as
///                                       for BACKOFF_TILES more tiles
template <class Shape, class SomeProblem = Problem>
struct LazySoftmax {
  using Scores = Accumulators<1, Shape::KEY_FRAGMENTS>;
  // References to variables of consume(): with m and l as members nvcc turns the mask of each
  // element into a branch.
  Rows<2>& m;
  Rows<2>& l;
  const SomeProblem& problem;
  int query0;                                 // the first of the rows
  float scale_log2 = problem.scale * LOG2_E;  // c
  // Begins as the number of tiles without a mask in these rows, and only falls.
  int lazy_end = problem.visible_keys(query0) / Shape::Bc;

  __device__ bool try_lazy(Scores& S) { return exponentiate_if_it_fits(S, m, l, scale_log2); }

  /// (8.1)  S = Q K^T of tile j again, of this warp's rows.
  template <class QueryRows, class KeyTile>
  __device__ void repair(Scores& S, const QueryRows& Q, KeyTile& K, int j) {
    S.each([](float& s, int) { s = 0.0f; });
    add_product(S, Q.left(), K.transposed());
    lazy_end = j - BACKOFF_TILES;
  }

  /// (6.2), (8.2)  S of tile j becomes P with the true maximum. Returns the factor that rescales O.
  __device__ Rows<2> exact(Scores& S, int j) {
    mask(S, problem, query0, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2);
    l = alpha * l + lane_sum(S);
    // If a row has no maximum yet, or c m is large, the next tile, j - 1, takes the maximum, too.
    const bool may_stay =
        in_all_rows(m, [&](float x) { return fabsf(scale_log2 * x) <= LARGE_EXPONENT; });
    if (!may_stay) lazy_end = min(lazy_end, j - 1);
    return alpha;
  }
};

}  // namespace
}  // namespace flash::tensor_cores
