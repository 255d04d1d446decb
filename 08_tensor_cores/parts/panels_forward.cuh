// 08 Tensor cores, Hopper forward: a block's work and the epilogue by TMA, in all steps; then what
// later steps add, in their order.
#pragma once

#include "08_tensor_cores/parts/epilogue.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/mask.cuh"
#include "08_tensor_cores/parts/panels.cuh"
#include "08_tensor_cores/parts/softmax.cuh"

namespace flash::tensor_cores {
namespace {

// ---- All steps: what the TMA reads and writes, and the work of a block --------------------------

/// The tensor maps of a forward step. Boxes are as high as a tile, boxes of O as a warp's rows.
struct Maps {
  TensorMap Q, K, V, O;
};
template <class Shape>
Maps maps_of(const Attention& a, int warp_rows = 16) {
  return {tensor_map(a.Q, Shape::Br), tensor_map(a.K, Shape::Bc), tensor_map(a.V, Shape::Bc),
          tensor_map(a.O, warp_rows)};
}

/// The order of the work. Made on the host: kernel parameters take no registers.
struct Schedule {
  int tiles_of_head, heads_at_once, end;  // end: tiles of queries of all heads
};
template <class Shape>
Schedule schedule_of(const Problem& p) {
  const int tiles = static_cast<int>(blocks_for(p.Nq, Shape::Br)), heads = p.B * p.H;
  const std::int64_t bytes_of_KV = std::int64_t{2} * p.Nk * p.d * 2;  // shared by a group of heads
  return {tiles, heads_in_L2(heads, bytes_of_KV / p.group_size()), tiles * heads};
}

/// A tile of queries of a head, and how many tiles of keys it sees. Within a head, the last tile,
/// which sees the most keys, is numbered first. Tiles lie from the end on: if they do not fill the
/// queries, the first one, which sees the fewest keys, lacks rows. It lacks whole warpgroups, since
/// the TMA stores no box that begins before query 0.
template <class Shape>
struct Work {
  int head, b, h, kv_head, tile, query0, visible_tiles;  // head: counted over all batches

  __device__ Work(const Problem& p, const Schedule& schedule, int work_id) {
    const BlockOrder order(schedule.tiles_of_head, p.B * p.H, schedule.heads_at_once, work_id);
    head = order.head;
    b = head / p.H, h = head % p.H;
    kv_head = p.kv_head(h);
    tile = order.tile;
    const int missing = (order.tiles_of_head * Shape::Br - p.Nq) / WARPGROUP_ROWS * WARPGROUP_ROWS;
    query0 = (order.tiles_of_head - 1 - tile) * Shape::Br - missing;
    visible_tiles = tiles_visible_to(p, query0, Shape::Br);
  }
  /// Key tiles seen by at least one of the `rows` rows from `first` on. Rows before 0 see none.
  __device__ static int tiles_visible_to(const Problem& p, int first, int rows) {
    const int last = min(first + rows, p.Nq) - 1;
    return last < 0 ? 0 : (p.visible_keys(last) + Shape::Bc - 1) / Shape::Bc;
  }
};

/// (8.5)  The epilogue by TMA: a warp's rows of O, and L = scale m + ln l, from query0 on. Staging:
/// its rows of Q, which nobody reads any more.
template <class Output, int N, class Tile>
__device__ void write_by_tma(Output& O, const Rows<N>& m, const Rows<N>& l, float scale,
                             const TensorMap& O_map, const Tensor<float>& L_all, int b, int h,
                             int query0, const Tile& staging) {
  normalize</*MayPrecede=*/true>(O, m, l, scale, L_all.head_vector(b, h), query0);
  store(staging, O);
  // Read after write, O: each lane makes its stores visible to the TMA (async proxy), then the warp
  // synchronises.
  fence_proxy_async();
  __syncwarp();
  if (threadIdx.x % WARP == 0 && query0 >= 0) {
    staging.store(O_map, query0, h, b);
    bulk_commit();
    // The TMA has read O. Before that the block must not end, nor, in `scheduled`, may the next Q
    // land here.
    bulk_wait_read<0>();
  }
}

/// A forward step. The TMA takes rows of whole 16-byte chunks: others are padded before.
template <const auto& shapes>
Variant hopper_step(const char* name, const char* idea) {
  Variant step = plain_step<shapes>(name, idea);
  step.refuse_on = refuse_unless_sm90;
  return step;
}

// ---- From step 2, `wgmma`, on: the products -----------------------------------------------------
//
// They only start a product. Its operands in shared memory have landed before, its result may be
// read after a wgmma_wait().

/// (8.1)  S = Q K^T, of a warpgroup's rows of Q.
template <class Scores, class QueryRows, class KeyTile>
__device__ void issue_S(Scores& S, const QueryRows& Q, KeyTile& K) {
  // Write after read: P of the previous tile, in the registers of S, has been packed.
  wgmma_fence();
  issue_product<typename KeyTile::T, QueryRows::DEPTH>(S, Q.k_major(), K.k_major(), /*add=*/false);
  wgmma_commit();
}

/// (6.4), or (8.4) in steps 5 to 7:  O += P V.
template <class Output, class Weights, class ValueTile>
__device__ void issue_PV(Output& O, const Weights& P, ValueTile& V) {
  // Read after write: O has been rescaled and P packed.
  wgmma_fence();
  issue_product<typename ValueTile::T, Weights::DEPTH>(O, P, V.mn_major(), /*add=*/true);
  wgmma_commit();
}

// ---- From step 3, `specialized`, on: rings ------------------------------------------------------

/// The shared memory of a block: tiles, then mbarriers, which only need to be at multiples of 8;
/// the 256 puts what a step adds behind them on a line of its own.
template <class T, int Width, int Br, int Bc, int Stages, int QStages = 1>
struct ForwardShared {
  PanelTile<T, Br, Width> Q[QStages];
  PanelTile<T, Bc, Width> K[Stages], V[Stages];
  alignas(256) Mbarrier full_Q[QStages];
  Mbarrier full_K[Stages], empty_K[Stages], full_V[Stages], empty_V[Stages];

  /// Called by one thread. Full: one arrival, by the producer, and bytes. Empty: the arrivals of
  /// all consumer warps.
  __device__ void initialize() {
    for (Mbarrier& full : full_Q) mbarrier_init(full, 1);
    for (int stage = 0; stage < Stages; ++stage) {
      mbarrier_init(full_K[stage], 1);
      mbarrier_init(full_V[stage], 1);
      init_for_warps(empty_K[stage], Br / 16);
      init_for_warps(empty_V[stage], Br / 16);
    }
    // Read after write: the TMA sees the initialised mbarriers.
    fence_mbarrier_init();
  }
};

// ---- From step 6, `tall`, on: tiles that not all see --------------------------------------------

/// Releases K and V without reading them. Waits until they are full first: an arrival counts for
/// the current phase, which could otherwise still be the previous tile's.
template <class Shared, int Stages>
__device__ void skip(Shared& shared, const PipelineState<Stages>& ring) {
  wait_full(shared.full_K[ring.stage()], ring.parity());
  release(shared.empty_K[ring.stage()]);
  wait_full(shared.full_V[ring.stage()], ring.parity());
  release(shared.empty_V[ring.stage()]);
}

// ---- In more/: two consumer warpgroups in turns -------------------------------------------------

/// The baton, which a warpgroup takes before it issues products, and then passes to the other one:
/// named barriers 3 and 4. There are 16: 0 is __syncthreads(), and 1 + i warpgroup i's own, of at
/// most four consumers in the ladder and two here.
__device__ inline void take_baton() { named_barrier_sync(3 + warpgroup(), 2 * WARPGROUP); }
__device__ inline void pass_baton() { named_barrier_arrive(4 - warpgroup(), 2 * WARPGROUP); }

// ---- In step 7, `scheduled`: persistent blocks --------------------------------------------------

/// The counter from which blocks draw their work.
inline std::vector<WorkspaceSpec> work_counter(const Problem&, Pass) {
  return {{.name = "counter", .shape = {1, 1, 1, 1}, .zeroed = true}};
}

}  // namespace
}  // namespace flash::tensor_cores
