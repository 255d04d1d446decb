// 08 Tensor cores, Hopper backward: blocks that take turns at a tile of dQ: the kernel of
// ordered.cuh and divided.cuh, which say where dK and dV go.
#pragma once

#include "08_tensor_cores/hopper_backward/more/general_parts.cuh"
#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/produce.cuh"
#include "08_tensor_cores/parts/share_of_dQ.cuh"

namespace flash::tensor_cores {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct TurnShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  static constexpr int STAGES = 2, DS_STAGES = 2,
                       DQ_STAGES = 2;  // of the rings of Q and dO; tiles of dS; of the ring of dQ
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 2 * 240 = 504, the same total as at launch, 3 * 168. With one
  // consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  template <class T>
  struct Shared : BackwardShared<T, Width, Br, Bc, STAGES, DS_STAGES> {
    alignas(128) float dQ[DQ_STAGES][Br * Width];  // in the layout of dQ_accum
    Mbarrier full_dQ[DQ_STAGES], empty_dQ[DQ_STAGES];
    int ticket;  // index of the block's work
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && CONSUMERS <= 2 && Br % WARPGROUP_ROWS == 0 &&
                    Width % 16 == 0,
                "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(DS_STAGES == STAGES && DQ_STAGES == STAGES,
                "tiles of dS and dQ go by the stage of their Q and dO");
};

/// A block's work. Order: the last tile of queries first, and at each tile all heads of the group.
/// - Last first, because the last queries see every tile of keys: all blocks begin at the same
///   tile, and then follow each other, one tile apart. In the other order, under a causal mask, a
///   block would wait for its predecessors at its diagonal.
/// - Heads inside: head by head, a block with fewer tiles would reach the next head before its
///   predecessors, and wait there.
template <class Shape>
struct OrderedWork : KeyWork<Shape> {
  using KeyWork<Shape>::KeyWork;

  __device__ QueryTile first(const Problem& p) const {
    return {this->group * p.group_size(), (p.Nq - 1) / Shape::Br * Shape::Br};
  }
  __device__ QueryTile after(const Problem& p, QueryTile at) const {
    const int end = (this->group + 1) * p.group_size();
    return at.h + 1 < end ? QueryTile{at.h + 1, at.query0}
                          : QueryTile{end - p.group_size(), at.query0 - Shape::Br};
  }
};

constexpr int ALL_CONSUMERS = 1;  // the number of their named barrier; 0 belongs to __syncthreads()

/// Waits until tiles of keys 0 .. key_tile - 1 have been added. Their blocks have smaller tickets:
/// they run already.
__device__ inline void wait_for_turn(const int* turn, int key_tile) {
  // Read after write: the acquiring load makes the previous additions visible to this thread.
  wait_until_equal(turn, key_tile);
  // Read after write: and the fence makes them visible to the TMA.
  fence_proxy_async_global();
}

/// One thread per stage of the ring of dQ: adds a tile to dQ_accum when the consumers have stored
/// it and its turn has come. turns [B, H, 1, tiles of queries]: how many tiles of keys have been
/// added to this tile of dQ.
template <class T, class Shape>
__device__ void add_dQ(Shared<T, Shape>& shared, const Problem& problem,
                       const Tensor<float>& dQ_accum, const Tensor<int>& turns_all,
                       const OrderedWork<Shape>& work, int stage) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  const float* const dQ_smem = shared.dQ[stage];
  const int key_tile = work.key0 / Shape::Bc;
  int parity = 0;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    if (iteration % Shape::DQ_STAGES != stage) continue;
    const auto target = dQ_accum.head(work.b, at.h).address(0, at.query0 * Shape::Width);
    const Matrix<int> turns = turns_all.head(work.b, at.h);
    const int query_tile = at.query0 / Shape::Br;
    // Read after write: dQ_i is complete.
    wait_full(shared.full_dQ[stage], parity);
    if (key_tile == 0) {  // nothing to add to yet
      bulk_store(target, dQ_smem, BYTES);
    } else {
      wait_for_turn(turns.address(0, query_tile), key_tile);
      bulk_reduce_add(target, dQ_smem, BYTES);
    }
    bulk_commit();
    // Read after write: the next block has to see the addition with its turn. bulk_wait_read would
    // not say that it is complete. Write after read: the TMA has read dQ_i, whose buffer the
    // consumers fill next.
    bulk_wait<0>();
    mbarrier_arrive(shared.empty_dQ[stage]);
    // The turn of (head, tile of queries) is key_tile now. + 1 lets the next block add; the last
    // one resets it to 0.
    const bool last =
        work.key0 + Shape::Bc >= problem.visible_keys(min(at.query0 + Shape::Br, problem.Nq) - 1);
    add_release(turns.address(0, query_tile), last ? -key_tile : 1);
    parity ^= 1;
  }
}

/// A consumer warpgroup: its rows of a tile of K and V. `out` takes dK and dV.
template <class T, class Shape, class Out>
__device__ void consume(Shared<T, Shape>& shared, const ScoreRule& rule,
                        const BackwardTensors<T>& all, const OrderedWork<Shape>& work,
                        const Out& out) {
  const Problem& problem = rule.problem;
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  const auto K_rows = shared.K.below(warpgroup() * WARPGROUP_ROWS),
             V_rows = shared.V.below(warpgroup() * WARPGROUP_ROWS);
  const ShareOfDQ<Shape> dQ_share;
  Accumulators<1, Shape::COL_FRAGMENTS> dK(0.0f), dV(0.0f);

  // Read after write: K and V have landed.
  wait_full(shared.full_K, 0);
  wait_full(shared.full_V, 0);
  PipelineState<Shape::STAGES> state;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(problem, at), state.next()) {
    const int stage = state.stage(), parity = state.parity();
    auto &Q = shared.Q[stage], &dO = shared.dO[stage];
    auto& dSt_smem = shared.dSt[stage];

    // 1. S^T and dP^T are issued; P^T while dP^T is in flight.
    Accumulators<1, Shape::QUERY_FRAGMENTS> St, dPt;  // transposed: [16, Br] in each warp
    // Read after write: Q_i and L_i have landed.
    wait_full(shared.full_Q[stage], parity);
    // Write after read: P^T of the previous tile, in the same registers, has been packed.
    wgmma_fence();
    issue_product<T, K_rows.DEPTH>(St, K_rows.k_major(), Q.k_major(), /*add=*/false);  // (8.11)
    wgmma_commit();
    // Read after write: dO_i and D_i have landed.
    wait_full(shared.full_dO[stage], parity);
    // Write after read: dS^T of the previous tile, in the same registers, has been packed.
    wgmma_fence();
    issue_product<T, V_rows.DEPTH>(dPt, V_rows.k_major(), dO.k_major(), /*add=*/false);  // (8.12)
    wgmma_commit();
    // Read after write: S^T is complete, dP^T may not be.
    wgmma_wait<1>(registers(St));
    rule.apply</*Transposed=*/true>(St, work.b * problem.H + at.h, at.query0, work.key0 + warp_row);
    recompute_P(St, shared.stats(stage), rule.late_scale, rule.subtract_first());
    auto& Pt = St;  // in the same registers

    // 2. dS^T, for all warps.
    // Read after write: dP^T is complete.
    wgmma_wait<0>(registers(dPt));
    const InRegisters<T, 1, Shape::Br / 16> Pt_reg(Pt);
    softmax_backward(dPt, Pt, shared.stats(stage));
    auto& dSt = dPt;
    const InRegisters<T, 1, Shape::Br / 16> dSt_reg(dSt);
    store_operand(dSt_smem.below(warp_row).left(), dSt_reg);

    // 3. dV += P^T dO; dQ = dS K; dK += dS^T Q, while dQ goes to the adder.
    // Read after write: P^T has been packed.
    wgmma_fence();
    issue_product<T, Shape::Br / 16>(dV, Pt_reg, dO.mn_major(), /*add=*/true);  // (8.14)
    wgmma_commit();
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory
    // through the async proxy.
    fence_proxy_async();
    // Read after write: all consumers have stored dS^T. Write after read: no warp still reads the
    // other tile of dS^T, which the next iteration stores.
    named_barrier_sync(ALL_CONSUMERS, Shape::CONSUMER_THREADS);
    Accumulators<1, dQ_share.COLS / 8> dQ;
    // Write after read: the previous dQ, in the same registers, has been stored.
    wgmma_fence();
    dQ_share.template issue<T>(dQ, dSt_smem, shared.K);  // (8.16)
    wgmma_commit();
    // Read after write: dS^T has been packed.
    wgmma_fence();
    issue_product<T, Shape::Br / 16>(dK, dSt_reg, Q.mn_major(), /*add=*/true);  // (8.15)
    wgmma_commit();
    // Read after write: dV and dQ are complete, dK may not be.
    wgmma_wait<1>(registers(dV), registers(dQ));
    // Write after read: the TMA has read the dQ of two tiles ago.
    wait_empty(shared.empty_dQ[stage], parity);
    dQ_share.store(shared.dQ[stage], dQ);
    // Read after write: this thread's dQ becomes visible to the TMA (async proxy).
    fence_proxy_async();
    commit(shared.full_dQ[stage]);
    // Write after read: this warp's products have read the tiles.
    wgmma_wait<0>(registers(dK));
    release(shared.empty[stage]);
  }
  dK.each([&](float& x, int) { x *= problem.scale; });
  out.write(shared, all, work, warp_row, dK, dV);
}

/// `out` says which K and V a block loads, and where its dK and dV go: for `ordered` WholeGroup.
template <class T, class Shape, class Out>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, const __grid_constant__ BackwardMaps maps,
                    BackwardTensors<T> all, Tensor<float> dQ_accum, Tensor<int> counter,
                    Tensor<int> turns, int heads_at_once, Out out) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dQ) init_for_warps(full, Shape::CONSUMERS * 4);
    for (Mbarrier& empty : shared.empty_dQ) mbarrier_init(empty, 1);  // one arrival, by the adder
    shared.initialize();
    const auto next_ticket = counter.head(0, 0).address(0, 0);
    const int end = static_cast<int>(gridDim.x);
    shared.ticket = atomicAdd(next_ticket, 1);
    // The last ticket of all: the counter is 0 again for the next launch.
    if (shared.ticket == end - 1) atomicSub(next_ticket, end);
  }
  // Read after write: all threads see the initialised mbarriers and the ticket. From here on roles
  // differ: no more block-wide barriers.
  __syncthreads();
  const int work_id = __shfl_sync(ALL_LANES, shared.ticket, 0);
  OrderedWork<Shape> work(rule.problem, heads_at_once, work_id);
  work.kv_head = out.kv_head(work.group);

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role = threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: producer; 1, 2: adders
    if (role > 2 || !elect_one()) return;
    if (role == 0) {
      produce<T, Shape>(shared, maps, rule.problem, all.L_and_D, work);
    } else {
      add_dQ<T>(shared, rule.problem, dQ_accum, turns, work, role - 1);
    }
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume<T>(shared, rule, all, work, out);
  }
}

// ---- The host ----------------------------------------------------------------------------------

/// The sum of dQ; the counter of tickets; a turn per tile of queries.
inline std::vector<WorkspaceSpec> workspace_of_turns(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> list = summing_workspace(p, pass);
  if (pass == Pass::forward) return list;
  list.push_back({.name = "counter", .shape = {1, 1, 1, 1}, .zeroed = true});
  list.push_back({.name = "turns",
                  .shape = {p.B, p.H, 1, padded_queries(p) / WARPGROUP_ROWS},
                  .zeroed = true});
  return list;
}

/// How many heads to run at once. Blocks of a head wait for one another, and fewer of them run at a
/// time with more heads in flight: two waves of heads. Under a mask, where blocks also differ in
/// length, the heads that L2 holds, if there are more.
template <class Shape>
int heads_in_turns(const Attention& a, const Problem& p, int tiles) {
  const int two_waves = 2 * heads_in_a_wave(a, tiles);
  if (!p.causal) return two_waves;
  const std::int64_t bytes =
      std::int64_t{p.Nq} * p.group_size() * Shape::Width * (2 + 2 + 4);  // Q, dO, dQ_accum
  return std::max(two_waves, heads_in_L2(p.B * p.Hkv, bytes));
}

/// Starts the kernels up to dQ_accum. The rule's problem is the one that blocks see.
template <class T, class Shape, class Out>
void start_turns(const char* name, const Attention& a, const ScoreRule& rule, const Out& out) {
  const Problem& p = rule.problem;
  const TensorRef& dQ_accum = a.workspace("dQ_accum");
  const BackwardMaps maps = backward_maps<Shape>(a);
  // No block stores dQ of queries that see no key: clear it here.
  const BackwardTensors<T> all =
      prepare<T, Shape::Width>(a, p.causal && p.Nq > p.Nk ? &dQ_accum : nullptr);
  const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
  launch(name,
         {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
          Shape::SHARED_ELEMENTS * sizeof(T)},
         backward_kernel<T, Shape, Out>, rule, maps, all, view<float>(dQ_accum),
         view<int>(a.workspace("counter")), view<int>(a.workspace("turns")),
         heads_in_turns<Shape>(a, p, tiles), out);
}

}  // namespace
}  // namespace flash::tensor_cores
