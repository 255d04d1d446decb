// 08 Tensor cores: code that the backward steps for Hopper share. Tiles are made of the panels of parts/panels.cuh; the layouts
// of L, D and dQ_accum in HBM are defined in parts/prepare.cuh and sum_of_dQ.cuh.
#pragma once

#include "08_tensor_cores/parts/launch_hopper.cuh"
#include "08_tensor_cores/parts/panels.cuh"
#include "08_tensor_cores/parts/sum_of_dQ.cuh"

#include <string_view>

namespace flash::tensor_cores {
namespace {

// ---- Work -------------------------------------------------------------------------------------------------------------------

/// A block's work: a tile of keys, and the tiles of queries to loop over, of all heads of a group. The first keys, visible to
/// the most queries under a causal mask, start first.
template <class Shape>
struct KeyWork : QueryTiles<Shape::Br> {
  int b, kv_head;  // of K and V; kv_head is the group's index, except in `divided`
  int key0;        // the first key

  __device__ KeyWork(const Problem& p, int heads_at_once, int work_id)
      : KeyWork(p, BlockOrder((p.Nk + Shape::Bc - 1) / Shape::Bc, p.B * p.Hkv, heads_at_once, work_id)) {}
  __device__ KeyWork(const Problem& p, const BlockOrder& order)
      : QueryTiles<Shape::Br>(p, order.head % p.Hkv, order.tile * Shape::Bc),
        b(order.head / p.Hkv),
        kv_head(this->group),
        key0(order.tile * Shape::Bc) {}
};

/// The same for `ordered` and `divided`, where blocks take turns at a tile of dQ. Order: the last tile of queries first, and
/// at each tile all heads of the group.
/// - Last first, because the last queries see every tile of keys: all blocks begin at the same tile, and then follow each
///   other, one tile apart. In the other order, under a causal mask, a block would wait for its predecessors at its diagonal.
/// - Heads inside: head by head, a block with fewer tiles would reach the next head before its predecessors, and wait there.
template <class Shape>
struct OrderedWork : KeyWork<Shape> {
  using KeyWork<Shape>::KeyWork;

  __device__ QueryTile first(const Problem& p) const {
    return {this->group * p.group_size(), (p.Nq - 1) / Shape::Br * Shape::Br};
  }
  __device__ QueryTile after(const Problem& p, QueryTile at) const {
    const int end = (this->group + 1) * p.group_size();
    return at.h + 1 < end ? QueryTile{at.h + 1, at.query0} : QueryTile{end - p.group_size(), at.query0 - Shape::Br};
  }
};

/// The tensor maps that the TMA reads: boxes as high as a tile.
struct BackwardMaps {
  TensorMap Q, K, V, dO;
};

// ---- Tiles ------------------------------------------------------------------------------------------------------------------

/// The layout of a block's shared memory. Tiles of 16-bit elements begin at multiples of 1024 bytes. L is loaded with Q and D
/// with dO, on the same mbarriers. `warpgroups` initialises `empty` too, but nobody waits for it: there a barrier says so.
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
  __device__ StTile dSt(int stage) const { return StTile(reinterpret_cast<T*>(storage.dSt[stage])); }
  __device__ QueryStats stats(int stage) const { return {{storage.L_and_D[stage], 2, Shape::Br, Shape::Br}}; }

  /// Called by one thread. Full: one arrival, by the producer, and bytes. Empty: the arrivals of the warps that read Q and dO,
  /// which are those of all consumers except in `relay`.
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
  __device__ void load_Q(int stage, const BackwardMaps& maps, const Tensor<const float>& L_and_D_all, int b, int h,
                         int query0) const {
    Mbarrier& full = storage.full_Q[stage];
    mbarrier_arrive_expect_tx(full, QTile::BYTES + 4 * Shape::Br);
    Q(stage).load(maps.Q, full, query0, h, b);
    bulk_load(stats(stage).rows.data, L_and_D_all.head(b, h).address(0, query0), 4 * Shape::Br, full);
  }
  __device__ void load_dO(int stage, const BackwardMaps& maps, const Tensor<const float>& L_and_D_all, int b, int h,
                          int query0) const {
    Mbarrier& full = storage.full_dO[stage];
    mbarrier_arrive_expect_tx(full, QTile::BYTES + 4 * Shape::Br);
    dO(stage).load(maps.dO, full, query0, h, b);
    bulk_load(stats(stage).rows.data + Shape::Br, L_and_D_all.head(b, h).address(1, query0), 4 * Shape::Br, full);
  }
};

/// One thread: loads tiles of queries, each as soon as its buffer is empty.
template <class T, class Shape, class Work>
__device__ void produce_queries(const BackwardShared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                                const Tensor<const float>& L_and_D, const Work& work) {
  auto& storage = shared.storage;
  PipelineState<Shape::STAGES> state;
  auto at = work.first(problem);
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at), state.next()) {
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(storage.empty[state.stage()], state.parity());
    shared.load_Q(state.stage(), maps, L_and_D, work.b, at.h, at.query0);
    shared.load_dO(state.stage(), maps, L_and_D, work.b, at.h, at.query0);
  }
}

/// From `ring` on, one thread: K and V, then the queries.
template <class T, class Shape, class Work>
__device__ void produce(const BackwardShared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                        const Tensor<const float>& L_and_D, const Work& work) {
  shared.load_KV(maps, work.b, work.kv_head, work.key0);
  produce_queries(shared, maps, problem, L_and_D, work);
}

/// Stores a left operand from registers to 16 rows of a tile: four 8 x 8 matrices at a time, without bank conflicts.
template <class T, int Height, int Depth>
__device__ void store_operand(const PanelOperand<T, Height, false, Depth>& rows, const InRegisters<T, 1, Depth>& A) {
#pragma unroll
  for (int k = 0; k < Depth; ++k) {
    const int col = 16 * k;
    stmatrix_x4(rows.panels.at_byte((rows.offset ^ col % PANEL * 2) + col / PANEL * Height * 2 * PANEL), A(k));
  }
}

// ---- P ---------------------------------------------------------------------------------------------------------------------

/// Masks transposed scores: a warp's 16 keys from key0 on, and all queries of the tile from query0 on.
template <class Scores>
__device__ void mask_transposed(Scores& St, const Problem& problem, int query0, int key0) {
  if (key0 + Scores::HEIGHT <= problem.end_key(query0)) return;  // the first query sees all of them
  const int lane = threadIdx.x % WARP, row = fragment::c_row(lane, 0), col = fragment::c_col(lane, 0);
  int hidden[2];  // how many columns, from the lane's first one on, do not see the key of its row, and of the row 8 below
  for (int half = 0; half < 2; ++half) {
    const int key = key0 + row + 8 * half, first_query = problem.causal ? key - (problem.Nk - problem.Nq) : query0;
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

/// (8.11)  Transposed scores become P^T = e^(scale S^T - L); stats have L log2(e). Rounding both products with log2(e) changes P by
/// at most 2^-23 |L|, less than its 16 bits do up to |L| = 2^12.
template <class Scores>
__device__ void exponentiate(Scores& St, const QueryStats& stats, float scale) {
  const float scale_log2 = scale * LOG2_E;
  St.each_at([&](float& s, int, int query) { s = exp2_approx(fmaf(scale_log2, s, -stats.L(query))); });
}

// ---- dQ ---------------------------------------------------------------------------------------------------------------------

/// A warpgroup's share of dQ [Br, Width]: 64 rows and all columns, or 64 columns if two warpgroups share the rows.
template <class Shape>
struct ShareOfDQ {
  static constexpr int ROW_SHARES = Shape::Br / WARPGROUP_ROWS, COL_SHARES = Shape::CONSUMERS / ROW_SHARES;
  static constexpr int COLS = COL_SHARES == 1 ? Shape::Width : PANEL;
  static_assert(COL_SHARES * ROW_SHARES == Shape::CONSUMERS && COL_SHARES * COLS >= Shape::Width,
                "the warpgroups make all of dQ");
  int row0 = warpgroup() % ROW_SHARES * WARPGROUP_ROWS, col0 = warpgroup() / ROW_SHARES * COLS;

  /// (8.16)  Issues dQ = dS K   [Br, Bc] x [Bc, d]. In both tiles rows are keys, and the sum runs down them: MN-major. Row
  /// row0 of dQ is column row0 of dS^T.
  template <class T, class StTile, class KTile>
  __device__ void issue(Accumulators<1, COLS / 8>& dQ, const StTile& dSt, const KTile& K) const {
    issue_product<T, Shape::Bc / 16>(dQ, dSt.mn_major(row0), K.mn_major(col0), /*add=*/false);
  }

  /// Offset of fragment n of the warp's 16 rows in dQ_accum (its order: parts/sum_of_dQ.cuh), for a tile that begins at query0.
  __device__ int offset(int query0, int n) const {
    return ((query0 + row0 + threadIdx.x % WARPGROUP / WARP * 16) / 16 * (Shape::Width / 8) + col0 / 8 + n) * 4 * WARP;
  }
  /// The number of the warpgroup's fragments: none beyond the last column.
  __device__ int fragments() const { return min(COLS, Shape::Width - col0) / 8; }

  /// Adds to the sum, four elements at a time.
  __device__ void add(const Matrix<float>& sum, int query0, const Accumulators<1, COLS / 8>& dQ) const {
    const auto first = sum.address(0, offset(query0, 0) + 4 * static_cast<int>(threadIdx.x % WARP));
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = dQ.elements[0][n];
      atomic_add4(first + 4 * n * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
  /// From `bulk` on: stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width], const Accumulators<1, COLS / 8>& dQ) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = dQ.elements[0][n];
      dQ_smem.as<float4>(0, offset(0, n) + 4 * static_cast<int>(threadIdx.x % WARP)) = make_float4(dq[0], dq[1], dq[2], dq[3]);
    }
  }
};

/// From `lead` on: all of dQ [Br, Width] in one warpgroup, 64 rows at a time.
template <class Shape>
struct WholeDQ {
  static constexpr int PARTS = Shape::Br / WARPGROUP_ROWS, FRAGMENTS = Shape::Width / 8;
  Accumulators<1, FRAGMENTS> parts[PARTS];

  /// (8.16)  Issues dQ = dS K, as ShareOfDQ does.
  template <class T, class StTile, class KTile>
  __device__ void issue(const StTile& dSt, const KTile& K) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      issue_product<T, Shape::Bc / 16>(parts[part], dSt.mn_major(part * WARPGROUP_ROWS), K.mn_major(), /*add=*/false);
    }
  }

  /// Stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width]) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const int row = part * WARPGROUP_ROWS + static_cast<int>(threadIdx.x) % WARPGROUP / WARP * 16;  // the warp's first
#pragma unroll
      for (int n = 0; n < FRAGMENTS; ++n) {
        const float(&dq)[4] = parts[part].elements[0][n];
        const int fragment = row / 16 * FRAGMENTS + n;
        dQ_smem.as<float4>(0, fragment * 4 * WARP + 4 * static_cast<int>(threadIdx.x % WARP)) =
            make_float4(dq[0], dq[1], dq[2], dq[3]);
      }
    }
  }
};

// ---- dK and dV of wide heads ------------------------------------------------------------------------------------------------

/// `relay`: dK or dV [16, Width] in each warp, in two pieces: an instruction for all columns would name 128 registers, more
/// than ptxas allows in a kernel of 512 threads, whatever setmaxnreg says.
template <class Shape>
struct WideGradient {
  static constexpr int LEFT = 128, RIGHT = Shape::Width - LEFT;  // columns
  Accumulators<1, LEFT / 8> left{0.0f};
  Accumulators<1, RIGHT / 8> right{0.0f};

  /// Issues this += A B, B a tile of queries.
  template <class T, class Tile>
  __device__ void issue(const InRegisters<T, 1, Shape::Br / 16>& A, const Tile& B) {
    issue_product<T, Shape::Br / 16>(left, A, B.mn_major(0), /*add=*/true);
    issue_product<T, Shape::Br / 16>(right, A, B.mn_major(LEFT), /*add=*/true);
  }
  template <class T, class Tile>
  __device__ void write(const Matrix<T>& M, int row0, float factor, const Tile& staging) {
    left.each([&](float& x, int) { x *= factor; });
    right.each([&](float& x, int) { x *= factor; });
    write_rows(M, row0, left, staging);
    write_rows(M, row0, right, staging, LEFT);
  }
};

// ---- The host ---------------------------------------------------------------------------------------------------------------

template <class Shape>
BackwardMaps backward_maps(const Attention& a) {
  return {tensor_map(a.Q, Shape::Br), tensor_map(a.K, Shape::Bc), tensor_map(a.V, Shape::Bc), tensor_map(a.dO, Shape::Br)};
}

/// more/ordered.cuh and more/divided.cuh, whose blocks take turns: the sum of dQ; the counter of tickets; a turn per tile of queries.
inline std::vector<WorkspaceSpec> workspace_of_turns(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> list = summing_workspace(p, pass);
  if (pass == Pass::forward) return list;
  list.push_back({.name = "counter", .shape = {1, 1, 1, 1}, .zeroed = true});
  list.push_back({.name = "turns", .shape = {p.B, p.H, 1, padded_queries(p) / WARPGROUP_ROWS}, .zeroed = true});
  return list;
}

/// How many heads to run at once there. Blocks of a head wait for one another, and fewer of them run at a time with more heads
/// in flight: two waves of heads. Under a mask, where blocks also differ in length, the heads that L2 holds, if there are more.
template <class Shape>
int heads_in_turns(const Attention& a, const Problem& p, int tiles) {
  const int two_waves = 2 * heads_in_a_wave(a, tiles);
  if (!p.causal) return two_waves;
  const std::int64_t bytes = std::int64_t{p.Nq} * p.group_size() * Shape::Width * (2 + 2 + 4);  // Q, dO, dQ_accum
  return std::max(two_waves, heads_in_L2(p.B * p.Hkv, bytes));
}

/// "" or why no kernel is compiled for the problem.
inline std::string refuse_wide_heads(const Problem& p) {
  if (p.d <= 128) return refuse_backward<true>(p);
  return "--head-dim is " + std::to_string(p.d) +
         "; allowed: 1 to 128, as dK and dV of more have no room in the registers of a warpgroup; --variant relay takes 256";
}

/// Which of the kernels for Hopper is the fastest, as measured (H200); more/divided.cuh knows itself where blocks are few.
inline std::string_view which_backward(const FullProblem& p) {
  if (p.d > 128) return "relay";
  const bool shared_keys = p.causal && p.group_size() > 1;  // whether heads share keys under a mask
  if (p.d > 64 && shared_keys) return "ordered";
  return (features_of(p) & ~plain_problem) == Features::none ? "lead" : "general";
}

/// A step of the ladder.
template <const auto& shapes>
Variant hopper_backward_step(const char* name, const char* idea) {
  Variant step = plain_backward_step<shapes, true>(name, idea);
  step.refuse = refuse_wide_heads;
  step.refuse_on = refuse_unless_sm90;
  return step;
}

/// A kernel of more/: for every bias and scale.
template <const auto& shapes>
Variant general_hopper_backward_step(const char* name, const char* idea, bool (*fastest)(const FullProblem&, Pass)) {
  Variant step = hopper_backward_step<shapes>(name, idea);
  step.takes = general_problem;
  step.fastest = fastest;
  step.only_if_fastest = true;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
