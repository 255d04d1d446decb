// 08 Tensor cores, forward, step 8: a maximum only where it is needed.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   P = 2^(c S - c m)        with c = scale log2 e         [Br, Bc]                    (8.2)
//   l = l + rowsum P                                                                   (8.3)
//   O = O + P V_j                                          [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 7:
// - Any m that keeps P from overflowing gives the same O and L, because it cancels in (8.5). (It cannot be too large either:
//   it is a score that the row has seen, so l >= 1.) So m is kept while no lane's part of a row of P sums to more than
//   MAX_LANE_SUM (8.7). Otherwise m becomes the true maximum, O and l are rescaled as in (6.2), and P is recomputed. Most
//   tiles need no maximum, no shuffle and no rescaling.
// - Keys are processed from last to first: under a causal mask, and with ALiBi, the largest scores tend to be at the end.
// - Tiles at d = 128 have 64 keys where registers allow (SPILLS).
// - One test per tile guards the rare work: mask, bias, a new maximum. It is true from tile unmasked_tiles on, or if a row has
//   no maximum yet.
//
// Grid: Tr*B*H. Block: warps; a warp owns 16 ROW_FRAGMENTS rows of S and O; a row is shared by the 4 lanes of a quad.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.  Workspace: padded copies if d % 8 != 0.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/softmax.cuh"
#include "08_tensor_cores/parts/tile.cuh"

namespace flash::tensor_cores::forward_8 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;                       // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns of S and of O
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;                                  // per SM (occupancy); they share its registers
  static constexpr bool Q_STAYS = Width / 16 * ROW_FRAGMENTS * 4 <= 32;  // registers a lane: more would spill, next to S and O
  static constexpr int SHARED_ELEMENTS = Width * (Br + 4 * Bc);          // Q, and two tiles each of K and V
  // With 192 accumulators of S and O per lane nvcc spills on sm_80.
  static constexpr bool SPILLS = ROW_FRAGMENTS * (KEY_FRAGMENTS + COL_FRAGMENTS) * 4 >= 192;
  static constexpr int MIN_SM = SPILLS ? 90 : min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2 && Width >= 64);

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 32 == 0, "whole fragments");
};

/// The warp's rows of Q as left operand, in registers or in shared memory.
template <class Shape, class T>
__device__ auto operand_of_Q(const Tile<T, Shape::Width>& Q_rows) {
  if constexpr (Shape::Q_STAYS) {
    return InRegisters<T, Shape::ROW_FRAGMENTS, Shape::Width / 16>(Q_rows.left());
  } else {
    return Q_rows.left();
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(ScoreRule rule, Tensor<const T> Q_all, Tensor<const T> K_all, Tensor<const T> V_all, Tensor<T> O_all,
                   Tensor<float> L_all, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // this architecture is too old: never launched
  const Problem& problem = rule.problem;
  const BlockOrder order((problem.Nq + Shape::Br - 1) / Shape::Br, problem.B * problem.H, heads_at_once);
  // The last tile starts first.
  const int query0 = (order.tiles_of_head - 1 - order.tile) * Shape::Br;
  const int b = order.head / problem.H, h = order.head % problem.H;
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));

  const Tile<T, Shape::Width> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Br);
  const auto K_smem = [&](int stage) {  // two tiles of K after Q, then two of V
    return Tile<T, Shape::Width>(Q_smem.end() + stage * Shape::Bc * Shape::Width, Shape::Bc);
  };
  const auto V_smem = [&](int stage) { return K_smem(2 + stage); };
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row of the tile
  const auto Q_rows = Q_smem.below(warp_row);                           // the warp's rows

  const float scale_log2 = rule.late_scale * LOG2_E;  // c

  using Output = Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS>;
  Output O(0.0f);                            // [16 ROW_FRAGMENTS, Width], not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  // No row of the tile sees keys from key_end on.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  const int visible_tiles = (key_end + Shape::Bc - 1) / Shape::Bc;

  // Every row sees all keys of the tiles before this one, where apply() would change nothing; 0 with a bias or a scale <= 0.
  const int unmasked_tiles = rule.scale_first ? 0 : problem.visible_keys(query0) / Shape::Bc;
  bool m_known = false;  // m is a maximum in all rows of the warp, and c m is not large: P may be computed with it

  // If visible_tiles = 0, they point in front of the first key, but copy nothing.
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS> copy_K(K, (visible_tiles - 1) * Shape::Bc),
      copy_V(V, (visible_tiles - 1) * Shape::Bc);
  const auto load_tile = [&](int j) {
    copy_K.load_async(K_smem(j % 2), -Shape::Bc);
    copy_V.load_async(V_smem(j % 2), -Shape::Bc);
  };

  // 1. Q and the last tiles of K and V, unless the tile sees no key: without Q_STAYS no barrier would then separate these
  // writes from those of O, which is staged in the buffer of Q.
  if (visible_tiles > 0) {
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(Q_all.head(b, h), query0).load_async(Q_smem);
    load_tile(visible_tiles - 1);
  }
  if constexpr (Shape::Q_STAYS) {
    cp_async_wait_all();
    // Read after write: Q of all threads has landed.
    __syncthreads();
  }
  const auto Q = operand_of_Q<Shape>(Q_rows);  // if visible_tiles = 0, nothing was copied, and no product uses it

  for (int j = visible_tiles - 1; j >= 0; --j) {
    // 2. K and V have landed; the prefetch of the next tiles starts.
    cp_async_wait_all();
    // Read after write: Q, K_j, V_j of all threads have landed.
    // Write after read: no warp still reads K_(j+1), V_(j+1).
    __syncthreads();
    if (j > 0) load_tile(j - 1);

    // 3. P with the current m, if it is known and P fits. All lanes of the warp take the same path:
    //   path     when                   rounds
    //   lazy     m_known, P fits        one: m stays, nothing is rescaled
    //   exact    not m_known            one, with the true maximum, for which P always fits: l and O are rescaled
    //   repair   m_known, P too large   two: the first overwrote S with P, so the second multiplies again and is exact (rare)
    // A loop, because the product then stands in the code once.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S;  // [16 ROW_FRAGMENTS, Bc]
    auto& P = S;                                                 // the same registers, after (8.2)
    Rows<Output::ROWS> sum(0.0f);
    for (bool exact = !m_known;; exact = true) {
      S.each([](float& s, int) { s = 0.0f; });
      add_product(S, Q, K_smem(j % 2).transposed());        // (8.1)
      bool m_subtracted = false;                            // S is S - m already: the exponent is c S, not c S - c m
      const bool rare_work = exact || j >= unmasked_tiles;  // one test for all of it, which gains 4 % at d = 64
      if (rare_work) {
        rule.apply(S, order.head, query0 + warp_row, j * Shape::Bc);
        if (exact) {
          const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
          l = alpha * l;
          O.scale_rows(alpha);
          m_known = in_all_rows(m, [&](float x) { return fabsf(scale_log2 * x) <= LARGE; });  // not if m = -inf
        }
        // So that a large c m is not rounded.
        m_subtracted = exact || rule.scale_first;
        if (m_subtracted) S.each([&](float& s, int r) { s -= zero_if_empty(m[r]); });
      }
      Rows<Output::ROWS> scaled_m = m;
      scaled_m.each([&](float& x, int) { x = m_subtracted ? 0.0f : scale_log2 * x; });
      S.each([&](float& s, int r) { s = exp2_approx(fmaf(scale_log2, s, -scaled_m[r])); });  // (8.2)
      sum = lane_sum(P);
      // The vote is the same in all lanes. NaN fits: a second round would not help.
      const bool fits = in_all_rows(sum, [](float x) { return !(x > MAX_LANE_SUM); });
      if (fits || exact) break;
    }
    l = l + sum;  // (8.3)

    // 4. O += P V.
    add_product(O, rounded<T>(P), V_smem(j % 2).right());  // (8.4)
  }
  write_output(O, m, l, rule.late_scale, O_all.head(b, h), L_all.head_vector(b, h), query0 + warp_row, Q_rows);  // (8.5)
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const int heads = p.B * p.H, group = p.group_size();  // heads of a group share K and V
    const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(heads);
    launch("tensor_lazy_maximum", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, score_rule(a), pad_if_unaligned<T>(a, a.Q, "Q_padded"),
           pad_if_unaligned<T>(a, a.K, "K_padded"), pad_if_unaligned<T>(a, a.V, "V_padded"), view<T>(a.O), view<float>(a.L),
           heads_in_L2(heads, std::int64_t{2} * p.Nk * p.d * 2 / group));
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<ForwardShape<Sizes...>>(why, start<ForwardShape<Sizes...>>, speed);
}

// Width, Br, Bc, row fragments per warp, blocks per SM; speed relative to the first of the width (left out: 3/4 of the line
// before), as measured with --tune on an H200.
constexpr CompiledShape shapes[] = {
    compiled<32, 64, 64, 1, 4>("four blocks on an SM: few products to each exponential"),
    compiled<32, 128, 64, 2, 2>("32 rows a warp"),
    compiled<64, 128, 64, 2, 2>("32 rows a warp, Q in registers"),
    compiled<64, 64, 64, 1, 3>("twice as many blocks, three on an SM", 0.80),
    compiled<96, 128, 64, 2, 2>("32 rows a warp"),
    compiled<96, 64, 32, 1, 3>("twice as many blocks, little shared memory"),
    compiled<128, 128, 64, 2, 2>("32 rows a warp"),
    compiled<128, 128, 32, 2, 2>("fits the registers of sm_80"),
    compiled<128, 64, 32, 1, 2>("twice as many blocks, little shared memory", 0.73),
    compiled<256, 128, 64, 1, 1>("16 rows a warp: more of O than that has no room; 8 warps share K and V"),
    compiled<256, 64, 32, 1, 2>("twice as many blocks"),
    compiled<256, 32, 16, 1, 4>("little shared memory"),
};

const Variant variant = forward_step<shapes>("lazy_maximum", "a maximum only when P would overflow; keys from last to first");

}  // namespace
}  // namespace flash::tensor_cores::forward_8
