// 08 Tensor cores, Hopper backward, deterministic dQ, by blocks that take turns.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T + bias - L_i), masked         [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 3, `bulk`, where blocks add to dQ in any order, and rounding differs from run to run: blocks take turns.
// - Blocks add to a tile of dQ in the order of their keys, each once its predecessor signals that its addition is complete.
//   Only adders wait, as long as dQ's ring has room. Completion takes longer than the read by the TMA, so two adders alternate.
// - The block of the first keys stores instead of adding, so that only queries without a visible key need a cleared dQ_accum.
// - OrderedWork of parts/panels_backward.cuh orders tiles of queries so that adders wait little.
// - A block draws a ticket, which says what tile of keys, of which head, is its work. It waits only for smaller tickets, whose
//   blocks run already.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head. Block: consumer
// warpgroups, each of which owns 64 keys; then the producer and two adders, a warp each.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see; dQ_accum written once per tile of K, read once per tile but
//   the first, and once at the end; dQ, dK, dV once. Workspace: L and D; dQ_accum; the counter and the turns, zero before and
//   after. Launches that run at the same time must not share it: with mixed tickets an adder might wait for ever.
// Shapes: d up to 128, padded with zeros to 32, 64, 96 or 128. Needs sm_90a.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores::hopper_backward_more_ordered {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns: of S^T; of dK and dV
  static constexpr int STAGES = 2, DS_STAGES = 2, DQ_STAGES = 2;  // of the rings of Q and dO; tiles of dS; of the ring of dQ
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 2 * 240 = 504, the same total as at launch, 3 * 168. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  struct Storage : BackwardStorage<Width, Br, Bc, STAGES, DS_STAGES> {
    alignas(128) float dQ[DQ_STAGES][Br * Width];  // in the layout of dQ_accum
    Mbarrier full_dQ[DQ_STAGES], empty_dQ[DQ_STAGES];
    int ticket;  // index of the block's work
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Storage) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && CONSUMERS <= 2 && Br % WARPGROUP_ROWS == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS || registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(DS_STAGES == STAGES && DQ_STAGES == STAGES, "tiles of dS and dQ go by the stage of their Q and dO");
};

constexpr int ALL_CONSUMERS = 1;  // the number of their named barrier; 0 belongs to __syncthreads()

/// Waits until tiles of keys 0 .. key_tile - 1 have been added. Their blocks have smaller tickets: they run already.
__device__ inline void wait_for_turn(const int* turn, int key_tile) {
  // Read after write: the acquiring load makes the previous additions visible to this thread.
  wait_until_equal(turn, key_tile);
  // Read after write: and the fence makes them visible to the TMA.
  fence_proxy_async_global();
}

/// One thread per stage of the ring of dQ: adds a tile to dQ_accum when the consumers have stored it and its turn has come.
/// turns [B, H, 1, tiles of queries]: how many tiles of keys have been added to this tile of dQ.
template <class T, class Shape>
__device__ void add_dQ(const BackwardShared<T, Shape>& shared, const Problem& problem, const Tensor<float>& dQ_accum,
                       const Tensor<int>& turns_all, const OrderedWork<Shape>& work, int stage) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  auto& storage = shared.storage;
  const float* const dQ_smem = storage.dQ[stage];
  const int key_tile = work.key0 / Shape::Bc;
  int parity = 0;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    if (iteration % Shape::DQ_STAGES != stage) continue;
    const auto target = dQ_accum.head(work.b, at.h).address(0, at.query0 * Shape::Width);
    const Matrix<int> turns = turns_all.head(work.b, at.h);
    const int query_tile = at.query0 / Shape::Br;
    // Read after write: dQ_i is complete.
    wait_full(storage.full_dQ[stage], parity);
    if (key_tile == 0) {  // nothing to add to yet
      bulk_store(target, dQ_smem, BYTES);
    } else {
      wait_for_turn(turns.address(0, query_tile), key_tile);
      bulk_reduce_add(target, dQ_smem, BYTES);
    }
    bulk_commit();
    // Read after write: the next block has to see the addition with its turn. bulk_wait_read would not say that it is complete.
    // Write after read: the TMA has read dQ_i, whose buffer the consumers fill next.
    bulk_wait<0>();
    mbarrier_arrive(storage.empty_dQ[stage]);
    // The turn of (head, tile of queries) is key_tile now. + 1 lets the next block add; the last one resets it to 0.
    const bool last = work.key0 + Shape::Bc >= problem.visible_keys(min(at.query0 + Shape::Br, problem.Nq) - 1);
    add_release(turns.address(0, query_tile), last ? -key_tile : 1);
    parity ^= 1;
  }
}

/// A consumer warpgroup: its rows of a tile of K and V.
template <class T, class Shape>
__device__ void consume(const BackwardShared<T, Shape>& shared, const ScoreRule& rule, const BackwardTensors<T>& all,
                        const OrderedWork<Shape>& work) {
  const Problem& problem = rule.problem;
  auto& storage = shared.storage;
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  const auto K_rows = shared.K().below(warpgroup() * WARPGROUP_ROWS), V_rows = shared.V().below(warpgroup() * WARPGROUP_ROWS);
  const ShareOfDQ<Shape> dQ_share;
  Accumulators<1, Shape::COL_FRAGMENTS> dK(0.0f), dV(0.0f);  // [16, Width] in each warp; dK without the scale

  // Read after write: K and V have landed.
  wait_full(storage.full_K, 0);
  wait_full(storage.full_V, 0);
  PipelineState<Shape::STAGES> state;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at), state.next()) {
    const int stage = state.stage(), parity = state.parity();
    const auto Q = shared.Q(stage), dO = shared.dO(stage);
    const auto dSt_smem = shared.dSt(stage);

    // 1. S^T and dP^T are issued; P^T while dP^T is in flight.
    Accumulators<1, Shape::QUERY_FRAGMENTS> St, dPt;  // transposed: [16, Br] in each warp
    // Read after write: Q_i and L_i have landed.
    wait_full(storage.full_Q[stage], parity);
    // Write after read: P^T of the previous tile, in the same registers, has been packed.
    wgmma_fence();
    issue_product<T, K_rows.DEPTH>(St, K_rows.k_major(), Q.k_major(), /*add=*/false);  // (8.11)
    wgmma_commit();
    // Read after write: dO_i and D_i have landed.
    wait_full(storage.full_dO[stage], parity);
    // Write after read: dS^T of the previous tile, in the same registers, has been packed.
    wgmma_fence();
    issue_product<T, V_rows.DEPTH>(dPt, V_rows.k_major(), dO.k_major(), /*add=*/false);  // (8.12)
    wgmma_commit();
    // Read after write: S^T is complete, dP^T may not be.
    wgmma_wait<1>(registers(St));
    rule.apply</*Transposed=*/true>(St, work.b * problem.H + at.h, at.query0, work.key0 + warp_row);
    exponentiate(St, shared.stats(stage), rule.late_scale, rule.scale_first);
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
    // Read after write: this thread's dS^T becomes visible to wgmma, which reads shared memory through the async proxy.
    fence_proxy_async();
    // Read after write: all consumers have stored dS^T.
    // Write after read: no warp still reads the other tile of dS^T, which the next iteration stores.
    named_barrier_sync(ALL_CONSUMERS, Shape::CONSUMER_THREADS);
    Accumulators<1, dQ_share.COLS / 8> dQ;
    // Write after read: the previous dQ, in the same registers, has been stored.
    wgmma_fence();
    dQ_share.template issue<T>(dQ, dSt_smem, shared.K());  // (8.16)
    wgmma_commit();
    // Read after write: dS^T has been packed.
    wgmma_fence();
    issue_product<T, Shape::Br / 16>(dK, dSt_reg, Q.mn_major(), /*add=*/true);  // (8.15)
    wgmma_commit();
    // Read after write: dV and dQ are complete, dK may not be.
    wgmma_wait<1>(registers(dV), registers(dQ));
    // Write after read: the TMA has read the dQ of two tiles ago.
    wait_empty(storage.empty_dQ[stage], parity);
    dQ_share.store(storage.dQ[stage], dQ);
    // Read after write: this thread's dQ becomes visible to the TMA (async proxy).
    fence_proxy_async();
    commit(storage.full_dQ[stage]);
    // Write after read: this warp's products have read the tiles.
    wgmma_wait<0>(registers(dK));
    release(storage.empty[stage]);
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have finished reading.
  named_barrier_sync(ALL_CONSUMERS, Shape::CONSUMER_THREADS);
  dK.each([&](float& x, int) { x *= problem.scale; });
  write_rows(all.dV.head(work.b, work.kv_head), work.key0 + warp_row, dV, shared.V().below(warp_row));
  write_rows(all.dK.head(work.b, work.kv_head), work.key0 + warp_row, dK, shared.K().below(warp_row));
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, const __grid_constant__ BackwardMaps maps, BackwardTensors<T> all, Tensor<float> dQ_accum,
                    Tensor<int> counter, Tensor<int> turns, int heads_at_once) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma on this architecture: never launched
  const BackwardShared<T, Shape> shared;
  auto& storage = shared.storage;
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : storage.full_dQ) init_for_warps(full, Shape::CONSUMERS * 4);
    for (Mbarrier& empty : storage.empty_dQ) mbarrier_init(empty, 1);  // one arrival, by the adder
    shared.initialize();
    const auto next_ticket = counter.head(0, 0).address(0, 0);
    const int end = static_cast<int>(gridDim.x);
    storage.ticket = atomicAdd(next_ticket, 1);
    if (storage.ticket == end - 1) atomicSub(next_ticket, end);  // the last of all: reset for the next launch
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more block-wide barriers.
  // Read after write: all threads see the ticket.
  __syncthreads();
  const int work_id = __shfl_sync(ALL_LANES, storage.ticket, 0);
  const OrderedWork<Shape> work(rule.problem, heads_at_once, work_id);

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role = threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: the producer; 1, 2: the adders
    if (role > 2 || !elect_one()) return;
    if (role == 0) {
      produce(shared, maps, rule.problem, all.L_and_D, work);
    } else {
      add_dQ(shared, rule.problem, dQ_accum, turns, work, role - 1);
    }
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume(shared, rule, all, work);
  }
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardMaps maps = backward_maps<Shape>(a);
    // No block stores dQ of queries that see no key: clear it here.
    const BackwardTensors<T> all = prepare<T, Shape::Width>(a, p.causal && p.Nq > p.Nk ? &dQ_accum : nullptr);
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    launch("backward_ordered", {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, score_rule(a), maps, all, view<float>(dQ_accum), view<int>(a.workspace("counter")),
           view<int>(a.workspace("turns")), heads_in_turns<Shape>(a, p, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<BackwardShape<Sizes...>>(why, start<BackwardShape<Sizes...>>, speed);
}

// Width, Br, Bc.
constexpr CompiledShape shapes[] = {
    compiled<32, 128, 128>("64 queries of dQ for each of two warpgroups"),
    compiled<32, 64, 64>("twice as many blocks, little shared memory", 0.65),
    compiled<64, 128, 128>("64 queries of dQ for each of two warpgroups"),
    compiled<64, 64, 64>("twice as many blocks, little shared memory", 0.65),
    compiled<96, 64, 128>("two warpgroups share Q and dO"),
    compiled<96, 64, 64>("twice as many blocks, little shared memory", 0.65),
    compiled<128, 64, 128>("64 columns of dQ for each of two warpgroups"),
    compiled<128, 64, 64>("twice as many blocks, little shared memory", 0.65),
};

const Variant variant = [] {
  Variant step = general_hopper_backward_step<shapes>(
      "ordered", "blocks take turns at dQ: the same bits in each run",
      [](const FullProblem& p, Pass pass) { return pass == Pass::backward && which_backward(p) == "ordered"; });
  step.workspace = workspace_of_turns;
  step.atomic_dQ = false;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_ordered
