// 08 Tensor cores, Hopper backward, all steps: a block's work, shared memory, loads, products; P.
#pragma once

#include "08_tensor_cores/parts/before_and_after.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/panels.cuh"

namespace flash::tensor_cores {
namespace {

// ---- Work --------------------------------------------------------------------------------------

/// A block's work: a tile of keys, and the tiles of queries to loop over, of all heads of a group.
/// The first keys, visible to the most queries under a causal mask, start first.
template <class Shape>
struct KeyWork : QueryLoop<Shape::Br> {
  int b, kv_head, key0;  // of K and V; key0: the first key

  __device__ KeyWork(const Problem& p, int heads_at_once, int work_id)
      : KeyWork(p, BlockOrder((p.Nk + Shape::Bc - 1) / Shape::Bc, p.B * p.Hkv, heads_at_once,
                              work_id)) {}
  __device__ KeyWork(const Problem& p, const BlockOrder& order)
      : QueryLoop<Shape::Br>(p, order.head % p.Hkv, order.tile * Shape::Bc),
        b(order.head / p.Hkv),
        kv_head(this->group),
        key0(order.tile * Shape::Bc) {}
};

/// The tensor maps that the TMA reads: boxes as high as a tile.
struct BackwardMaps {
  TensorMap Q, K, V, dO;
};

template <class Shape>
BackwardMaps backward_maps(const Attention& a) {
  return {tensor_map(a.Q, Shape::Br), tensor_map(a.K, Shape::Bc), tensor_map(a.V, Shape::Bc),
          tensor_map(a.dO, Shape::Br)};
}

// ---- Tiles -------------------------------------------------------------------------------------

/// The shared memory of a block: tiles, then mbarriers (alignas: as in panels_forward.cuh). full_Q
/// is for Q and L, full_dO for dO and D; the first Q comes with K, and the first dO with V.
/// `warpgroups` has a barrier instead of `empty`.
template <class T, int Width, int Br, int Bc, int Stages, int DSStages>
struct BackwardShared {
  using QTile = PanelTile<T, Br, Width>;
  PanelTile<T, Bc, Width> K, V;
  QTile Q[Stages], dO[Stages];
  PanelTile<T, Bc, Br> dSt[DSStages];  // dS^T: rows are keys
  float L_and_D[Stages][2 * Br];       // L of a tile's queries, followed by D
  alignas(256) Mbarrier full_Q[Stages], full_dO[Stages], empty[Stages];

  template <bool LInPowersOf2 = true>  // in all steps of the ladder
  __device__ QueryStats<LInPowersOf2> stats(int stage) {
    return {{L_and_D[stage], 2, Br, Br}};
  }

  /// Called by one thread. Full: one arrival, by the producer, and bytes. Empty: the arrivals of
  /// the warps that read Q and dO, those of all consumers.
  __device__ void initialize(int reading_warps = Bc / 16) {
    for (int stage = 0; stage < Stages; ++stage) {
      mbarrier_init(full_Q[stage], 1);
      mbarrier_init(full_dO[stage], 1);
      init_for_warps(empty[stage], reading_warps);
    }
    // Read after write: the TMA sees the initialised mbarriers.
    fence_mbarrier_init();
  }

  /// Called by one thread: tiles of Q and dO, and with a block's first ones K and V. load_stats()
  /// adds L and D, which the mbarriers expect too: in step 5 they may not be ready yet.
  template <class Work>
  __device__ void load_tiles(int stage, const BackwardMaps& maps, const Work& work,
                             const QueryTile& at, bool first) {
    const int bytes = QTile::BYTES + 4 * Br + (first ? K.BYTES : 0);  // V has as many
    mbarrier_arrive_expect_tx(full_Q[stage], bytes);
    if (first) K.load(maps.K, full_Q[stage], work.key0, work.kv_head, work.b);
    Q[stage].load(maps.Q, full_Q[stage], at.query0, at.h, work.b);
    mbarrier_arrive_expect_tx(full_dO[stage], bytes);
    if (first) V.load(maps.V, full_dO[stage], work.key0, work.kv_head, work.b);
    dO[stage].load(maps.dO, full_dO[stage], at.query0, at.h, work.b);
  }
  __device__ void load_stats(int stage, const Tensor<const float>& L_and_D_all, int b,
                             const QueryTile& at) {
    const Matrix<const float> of_head = L_and_D_all.head(b, at.h);
    bulk_load(L_and_D[stage], of_head.address(0, at.query0), 4 * Br, full_Q[stage]);
    bulk_load(L_and_D[stage] + Br, of_head.address(1, at.query0), 4 * Br, full_dO[stage]);
  }
};

/// Stores a left operand from registers to 16 rows of a tile: four 8 x 8 matrices at a time,
/// without bank conflicts.
template <class T, int Height, int Depth>
__device__ void store_operand(const PanelOperand<T, Height, false, Depth>& rows,
                              const InRegisters<T, 1, Depth>& A) {
#pragma unroll
  for (int k = 0; k < Depth; ++k) {
    const int col = 16 * k;
    stmatrix_x4(
        rows.panels.at_byte((rows.offset ^ col % PANEL * 2) + col / PANEL * Height * 2 * PANEL),
        A(k));
  }
}

// ---- Products: these only start one, like issue_S() and issue_PV() of panels_forward.cuh --------

/// (8.11), (8.12)  S^T = K Q^T or dP^T = V dO^T, of a warpgroup's rows of K or V.
template <class Scores, class KeyRows, class Tile>
__device__ void issue_scores(Scores& St, const KeyRows& K, Tile& Q) {
  // Write after read: P^T or dS^T of the previous tile, in the registers of St, has been packed.
  wgmma_fence();
  issue_product<typename Tile::T, KeyRows::DEPTH>(St, K.k_major(), Q.k_major(), /*add=*/false);
  wgmma_commit();
}

/// (8.14), (8.15)  dV += P^T dO or dK += dS^T Q.
template <class Gradient, class Weights, class Tile>
__device__ void issue_gradient(Gradient& dV, const Weights& Pt, Tile& dO) {
  // Read after write: P^T or dS^T has been packed.
  wgmma_fence();
  issue_product<typename Tile::T, Weights::DEPTH>(dV, Pt, dO.mn_major(), /*add=*/true);
  wgmma_commit();
}

// ---- P -----------------------------------------------------------------------------------------

/// Masks transposed scores: a warp's 16 keys from key0 on, and all queries of the tile from query0
/// on. A lane has two keys, so that two bounds replace visible_keys() of each element in mask().
template <class Scores>
__device__ void mask_transposed(Scores& St, const Problem& problem, int query0, int key0) {
  if (key0 + Scores::HEIGHT <= problem.visible_keys(query0)) return;  // query0 sees them all
  const int lane = threadIdx.x % WARP, row = fragment::c_row(lane, 0),
            col = fragment::c_col(lane, 0);
  // How many columns, from the lane's first one on, do not see the key of its row, and of the row 8
  // below.
  int hidden[2];
  for (int half = 0; half < 2; ++half) {
    // As problem.first_query(key), without its limit at 0, which would cost instructions.
    const int key = key0 + row + 8 * half,
              first_query = problem.causal ? key - (problem.Nk - problem.Nq) : query0;
    hidden[half] = (key < problem.Nk ? first_query - query0 : Scores::WIDTH) - col;
  }
#pragma unroll
  for (int n = 0; n < Scores::WIDTH / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (8 * n + e % 2 < hidden[e / 2]) St.elements[0][n][e] = -INFINITY;
    }
  }
}

/// (8.11)  Transposed scores become P^T = e^(scale S^T - L). Rounding both products with log2(e)
/// changes P by at most 2^-23 |L|, less than its 16 bits do up to |L| = 2^12, and by 6 % at 2^19.
template <class Scores>
__device__ void recompute_P_log2(Scores& St, const QueryStats</*LInPowersOf2=*/true>& stats,
                                 float scale) {
  const float scale_log2 = scale * LOG2_E;
  St.each_at([&](float& s, int, int query) {
    s = exp2_approx(fmaf(scale_log2, s, -stats.L_log2(query)));
  });
}

}  // namespace
}  // namespace flash::tensor_cores
