// 08 Tensor cores: code that the backward steps for Hopper share. Tiles are made of the panels of
// parts/panels.cuh; the layouts of L, D and dQ_accum in HBM are defined in parts/prepare.cuh and
// sum_of_dQ.cuh.
#pragma once

#include "08_tensor_cores/parts/launch_hopper_backward.cuh"
#include "08_tensor_cores/parts/panels.cuh"
#include "08_tensor_cores/parts/sum_of_dQ.cuh"

namespace flash::tensor_cores {
namespace {

// ---- Work --------------------------------------------------------------------------------------

/// A block's work: a tile of keys, and the tiles of queries to loop over, of all heads of a group.
/// The first keys, visible to the most queries under a causal mask, start first.
template <class Shape>
struct KeyWork : QueryTiles<Shape::Br> {
  int b, kv_head;  // of K and V; kv_head is the group's index, except in `divided`
  int key0;        // the first key

  __device__ KeyWork(const Problem& p, int heads_at_once, int work_id)
      : KeyWork(p, BlockOrder((p.Nk + Shape::Bc - 1) / Shape::Bc, p.B * p.Hkv, heads_at_once,
                              work_id)) {}
  __device__ KeyWork(const Problem& p, const BlockOrder& order)
      : QueryTiles<Shape::Br>(p, order.head % p.Hkv, order.tile * Shape::Bc),
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

/// The layout of a block's shared memory. Tiles of 16-bit elements begin at multiples of 1024
/// bytes. L is loaded with Q and D with dO, on the same mbarriers. `warpgroups` initialises `empty`
/// too, but nobody waits for it: there a barrier says so.
template <int Width, int Br, int Bc, int Stages, int DSStages>
struct BackwardStorage {
  unsigned short K[tile_elements(Bc, Width)], V[tile_elements(Bc, Width)];
  unsigned short Q[Stages][tile_elements(Br, Width)], dO[Stages][tile_elements(Br, Width)];
  unsigned short dSt[DSStages][tile_elements(Bc, Br)];  // dS^T: rows are keys
  float L_and_D[Stages][2 * Br];                        // L of a tile's queries, followed by D
  alignas(256) Mbarrier full_K, full_V;
  Mbarrier full_Q[Stages], full_dO[Stages], empty[Stages];
};

/// The shared memory of a block, with tiles of T.
template <class T, class Shape>
struct BackwardShared {
  using Storage = typename Shape::Storage;
  using KTile = PanelTile<T, Shape::Bc, Shape::Width>;
  using QTile = PanelTile<T, Shape::Br, Shape::Width>;
  using StTile = PanelTile<T, Shape::Bc, Shape::Br>;
  Storage& storage = reinterpret_cast<Storage&>(*dynamic_shared<T>(Shape::SHARED_ELEMENTS));

  __device__ KTile K() const { return KTile(reinterpret_cast<T*>(storage.K)); }
  __device__ KTile V() const { return KTile(reinterpret_cast<T*>(storage.V)); }
  __device__ QTile Q(int stage) const { return QTile(reinterpret_cast<T*>(storage.Q[stage])); }
  __device__ QTile dO(int stage) const { return QTile(reinterpret_cast<T*>(storage.dO[stage])); }
  __device__ StTile dSt(int stage) const {
    return StTile(reinterpret_cast<T*>(storage.dSt[stage]));
  }
  __device__ QueryStats stats(int stage) const {
    return {{storage.L_and_D[stage], 2, Shape::Br, Shape::Br}};
  }

  /// Called by one thread. Full: one arrival, by the producer, and bytes. Empty: the arrivals of
  /// the warps that read Q and dO, which are those of all consumers except in `relay`.
  __device__ void initialize(int releasing_warps = Shape::CONSUMERS * 4) const {
    mbarrier_init(storage.full_K, 1);
    mbarrier_init(storage.full_V, 1);
    for (int stage = 0; stage < Shape::STAGES; ++stage) {
      mbarrier_init(storage.full_Q[stage], 1);
      mbarrier_init(storage.full_dO[stage], 1);
      init_for_warps(storage.empty[stage], releasing_warps);
    }
    // Read after write: the TMA sees the initialised mbarriers.
    fence_mbarrier_init();
  }

  // Called by one thread.
  __device__ void load_KV(const BackwardMaps& maps, int b, int kv_head, int key0) const {
    mbarrier_arrive_expect_tx(storage.full_K, KTile::BYTES);
    K().load(maps.K, storage.full_K, key0, kv_head, b);
    mbarrier_arrive_expect_tx(storage.full_V, KTile::BYTES);
    V().load(maps.V, storage.full_V, key0, kv_head, b);
  }
  __device__ void load_Q(int stage, const BackwardMaps& maps,
                         const Tensor<const float>& L_and_D_all, int b, int h, int query0) const {
    Mbarrier& full = storage.full_Q[stage];
    mbarrier_arrive_expect_tx(full, QTile::BYTES + 4 * Shape::Br);
    Q(stage).load(maps.Q, full, query0, h, b);
    bulk_load(stats(stage).rows.data, L_and_D_all.head(b, h).address(0, query0), 4 * Shape::Br,
              full);
  }
  __device__ void load_dO(int stage, const BackwardMaps& maps,
                          const Tensor<const float>& L_and_D_all, int b, int h, int query0) const {
    Mbarrier& full = storage.full_dO[stage];
    mbarrier_arrive_expect_tx(full, QTile::BYTES + 4 * Shape::Br);
    dO(stage).load(maps.dO, full, query0, h, b);
    bulk_load(stats(stage).rows.data + Shape::Br, L_and_D_all.head(b, h).address(1, query0),
              4 * Shape::Br, full);
  }
};

/// One thread: loads tiles of queries, each as soon as its buffer is empty.
template <class T, class Shape, class Work>
__device__ void produce_queries(const BackwardShared<T, Shape>& shared, const BackwardMaps& maps,
                                const Problem& problem, const Tensor<const float>& L_and_D,
                                const Work& work) {
  auto& storage = shared.storage;
  PipelineState<Shape::STAGES> state;
  auto at = work.first(problem);
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(problem, at), state.next()) {
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(storage.empty[state.stage()], state.parity());
    shared.load_Q(state.stage(), maps, L_and_D, work.b, at.h, at.query0);
    shared.load_dO(state.stage(), maps, L_and_D, work.b, at.h, at.query0);
  }
}

/// From `ring` on, one thread: K and V, then the queries.
template <class T, class Shape, class Work>
__device__ void produce(const BackwardShared<T, Shape>& shared, const BackwardMaps& maps,
                        const Problem& problem, const Tensor<const float>& L_and_D,
                        const Work& work) {
  shared.load_KV(maps, work.b, work.kv_head, work.key0);
  produce_queries(shared, maps, problem, L_and_D, work);
}

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

// ---- P -----------------------------------------------------------------------------------------

/// Masks transposed scores: a warp's 16 keys from key0 on, and all queries of the tile from query0
/// on.
template <class Scores>
__device__ void mask_transposed(Scores& St, const Problem& problem, int query0, int key0) {
  if (key0 + Scores::HEIGHT <= problem.end_key(query0)) return;  // the first query sees all of them
  const int lane = threadIdx.x % WARP, row = fragment::c_row(lane, 0),
            col = fragment::c_col(lane, 0);
  // How many columns, from the lane's first one on, do not see the key of its row, and of the row 8
  // below.
  int hidden[2];
  for (int half = 0; half < 2; ++half) {
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

/// (8.11)  Transposed scores become P^T = e^(scale S^T - L); stats have L log2(e). Rounding both
/// products with log2(e) changes P by at most 2^-23 |L|, less than its 16 bits do up to |L| = 2^12.
template <class Scores>
__device__ void exponentiate(Scores& St, const QueryStats& stats, float scale) {
  const float scale_log2 = scale * LOG2_E;
  St.each_at(
      [&](float& s, int, int query) { s = exp2_approx(fmaf(scale_log2, s, -stats.L(query))); });
}

}  // namespace
}  // namespace flash::tensor_cores
