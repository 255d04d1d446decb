// 08 Tensor cores with dropout (chapter 09), forward and backward: which weights in accumulators
// are dropped.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"
#include "common/parts/ragged.cuh"

namespace flash::tensor_cores {
namespace {

/// (9.12)  P becomes P o Z. Its tile begins at query query0, which is even, and at key key0, of
/// head h (over all batches). A call draws for two neighbouring queries and two keys that are 16
/// apart. Such queries are rows of lanes 4 apart, and each lane has two neighbouring keys: the even
/// row's lane draws for the first key, the odd row's for the second, and each sends the other the
/// two words of its row. The words belong to (even query, key), (even, key + 16), (odd, key) and
/// (odd, key + 16).
template <class Rule, int RowFragments, int ColFragments>
__device__ void drop(const Rule& rule, Accumulators<RowFragments, ColFragments>& P, int h,
                     int query0, int key0) {
  if constexpr (Drops<Rule>) {
    // The batch has one element. opaque(): no register keeps the number of the head through the
    // loop.
    if constexpr (Rule::RAGGED) h = opaque(h + rule.sequence * rule.problem.H);
    constexpr int apart = DropMask::APART / 8;  // fragments between the two keys of a call
    constexpr bool both =
        ColFragments % (2 * apart) == 0;  // else the tile has 16 keys, one of each call
    const int lane =
        opaque(threadIdx.x) % WARP;  // no register keeps what follows from it for the next tile
    const bool odd = lane / 4 % 2 != 0;
#pragma unroll
    for (int r = 0; r < 2 * RowFragments; ++r) {
#pragma unroll
      for (int n = 0; n < ColFragments; ++n) {
        if (both && n / apart % 2 != 0) continue;  // drawn with fragment n - apart
        const int query = query0 + 8 * r + lane / 4, key = key0 + 8 * n + fragment::c_col(lane, 0);
        const FourWords drawn = rule.dropout.draw(h, query, key + odd);
        const auto& w = drawn.word;
#pragma unroll
        for (int k = 0; k < (both ? 2 : 1); ++k) {  // this key, and the one 16 further on
          const bool second = both ? k != 0 : (key & DropMask::APART) != 0;
          const unsigned of_even = second ? w[1] : w[0], of_odd = second ? w[3] : w[2];
          const unsigned kept = odd ? of_odd : of_even,
                         got = __shfl_xor_sync(ALL_LANES, odd ? of_even : of_odd, 4);
          float* const pair = &P.elements[r / 2][n + k * apart][2 * (r % 2)];
          pair[0] *= (odd ? got : kept) < rule.dropout.threshold ? 0.0f : rule.dropout.kept;
          pair[1] *= (odd ? kept : got) < rule.dropout.threshold ? 0.0f : rule.dropout.kept;
        }
      }
    }
  }
}

// ---- Transposed, for the backward pass: rows are keys, columns queries -------------------------

/// Dropped weights become negative. The two queries of a call are a lane's neighbours, the two keys
/// are rows of two fragments if the warp has 32.
template <class Rule, int RowFragments, int ColFragments>
__device__ void mark_dropped(const Rule& rule, Accumulators<RowFragments, ColFragments>& P, int h,
                             int query0, int key0) {
  if constexpr (Drops<Rule>) {
    if constexpr (Rule::RAGGED) h = opaque(h + rule.sequence * rule.problem.H);
    constexpr int keys = RowFragments % 2 == 0 ? 2 : 1;  // of a call
    const int lane = threadIdx.x % WARP;
    // opaque(): no register keeps Philox's first product, of the key, through the loop.
    key0 = opaque(key0);
#pragma unroll
    for (int i = 0; i < RowFragments; i += keys) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < ColFragments; ++n) {
          const int query = query0 + 8 * n + fragment::c_col(lane, 0),
                    key = key0 + 16 * i + 8 * half + lane / 4;
          const FourWords drawn = rule.dropout.draw(h, query, key);
#pragma unroll
          for (int e = 0; e < 2 * keys; ++e) {
            float& p = P.elements[i + e / 2][n][2 * half + e % 2];
            if (rule.dropout.factor(drawn, query + e % 2, key + e / 2 * DropMask::APART) == 0.0f)
              p = -p;
          }
        }
      }
    }
  }
}

/// (9.12)  P o Z of weights that are marked.
template <class Rule, class Tile>
__device__ Tile drop_weights(const Rule& rule, Tile P) {
  if constexpr (Drops<Rule>) P.each([&](float& p, int) { p = fmaxf(p, 0.0f) * rule.dropout.kept; });
  return P;
}

/// (9.13)  dP becomes dP o Z, and P loses its marks.
template <class Rule, int RowFragments, int ColFragments>
__device__ void drop_gradients(const Rule& rule, Accumulators<RowFragments, ColFragments>& dP,
                               Accumulators<RowFragments, ColFragments>& P) {
  if constexpr (Drops<Rule>) {
#pragma unroll
    for (int index = 0; index < RowFragments * ColFragments * 4; ++index) {
      const int i = index / 4 / ColFragments, n = index / 4 % ColFragments, e = index % 4;
      float& p = P.elements[i][n][e];
      dP.elements[i][n][e] *= p < 0.0f ? 0.0f : rule.dropout.kept;
      p = fabsf(p);
    }
  }
}

}  // namespace
}  // namespace flash::tensor_cores
