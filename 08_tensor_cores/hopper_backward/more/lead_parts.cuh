// 08 Tensor cores, Hopper backward: what lead_by_rule.cuh is made of: tile sizes, a block's work
// and loads, and the slopes of a softcap.
#pragma once

#include "08_tensor_cores/backward/more/options_parts.cuh"
#include "08_tensor_cores/hopper_backward/more/general_parts.cuh"
#include "08_tensor_cores/hopper_backward/shapes.hpp"

namespace flash::tensor_cores {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
/// DQStages: buffers of dQ, each with an adder. Makers: warpgroups that multiply dQ.
template <int Width_, int Br_, int Bc_, int DQStages = 1, int Makers = 1>
struct LeadShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  static constexpr int STAGES = 2;  // of the ring of Q and dO, by which tiles of dS go, too
  static constexpr int DQ_STAGES = DQStages, MAKERS = Makers;
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 256 + 224, since the maker holds P^T, dS^T and dQ together; two
  // makers 24 + 240 + 240: as many as 3 * 168 at launch. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, MAKER_REGISTERS = MAKERS == 1 ? 256 : 240,
                       RUNNER_REGISTERS = 480 - MAKER_REGISTERS;
  template <class T>
  struct Shared : BackwardShared<T, Width, Br, Bc, STAGES, STAGES> {
    alignas(128) float dQ[DQ_STAGES][Br * Width];  // in the layout of dQ_accum
    Mbarrier full_dSt[STAGES], full_dQ[DQ_STAGES], empty_dQ[DQ_STAGES];

    /// Called by one thread.
    __device__ void initialize() {
      // Before the others, whose fence publishes these mbarriers too.
      for (Mbarrier& each : full_dSt) init_for_warps(each, CONSUMERS * 4);
      for (Mbarrier& each : full_dQ) init_for_warps(each, MAKERS * 4);
      for (Mbarrier& each : empty_dQ) mbarrier_init(each, 1);  // one arrival, by the adder
      BackwardShared<T, Width, Br, Bc, STAGES, STAGES>::initialize();
    }
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc % WARPGROUP_ROWS == 0 && CONSUMERS <= 2 && Br % WARPGROUP_ROWS == 0 &&
                    Width % 16 == 0,
                "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS,
                                  PRODUCER_REGISTERS + MAKER_REGISTERS + RUNNER_REGISTERS));
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
};

// ---- Work --------------------------------------------------------------------------------------

/// A tile of keys of the sequence that the rule has entered, and the tiles of queries whose window
/// has any of them, perhaps none.
template <class Shape>
struct WindowedKeyWork : TilesInWindow<Shape> {
  int b, kv_head, key0;

  __device__ WindowedKeyWork(const OptionsProblem& p, int head, int first_key)
      : TilesInWindow<Shape>(p, head % p.Hkv, first_key),
        b(head / p.Hkv),
        kv_head(this->group),
        key0(first_key) {}
};

/// This block's place. opaque(): no register keeps it through the loop, if it is asked for again.
__device__ inline BlockOrder order_of_block(const Problem& p, int heads_at_once) {
  const int heads = p.B * p.Hkv;
  return BlockOrder(gridDim.x / heads, heads, opaque(heads_at_once), opaque(blockIdx.x));
}

/// Its work, in a ragged batch in its sequence.
template <class Shape, class Rule>
__device__ auto work_of_block(Rule& rule, int heads_at_once) {
  const BlockOrder order = order_of_block(rule.problem, heads_at_once);
  if constexpr (Rule::RAGGED) {
    const int key0 = rule.enter(order.tile);
    return WindowedKeyWork<Shape>(rule.problem, order.head, key0);
  } else if constexpr (Rule::OPTIONS) {
    return WindowedKeyWork<Shape>(rule.problem, order.head, order.tile * Shape::Bc);
  } else {
    return KeyWork<Shape>(rule.problem, order);
  }
}

/// One thread: K and V, then the queries, each tile as soon as its buffer is empty. A tile may
/// reach into the next sequence of a ragged batch: those keys are masked, and those queries have L
/// = inf, so that P is 0.
template <class T, class Shape, class Rule, class Work>
__device__ void produce_by_rule(Shared<T, Shape>& shared, const BackwardMaps& maps,
                                const Rule& rule, const Tensor<const float>& L_and_D,
                                const Work& work) {
  int first_query = 0, first_key = 0;  // of the sequence
  if constexpr (Rule::RAGGED) first_query = rule.offset(0, 0), first_key = rule.offset(0, 1);
  if (work.iterations > 0) shared.load_KV(maps, work.b, work.kv_head, first_key + work.key0);
  PipelineState<Shape::STAGES> state;
  auto at = work.first(rule.problem);
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(rule.problem, at), state.next()) {
    const int stage = state.stage();
    const int row = first_query + at.query0, stats0 = row_of(rule, at.query0);
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(shared.empty[stage], state.parity());
    // As load_queries(), but L and D of a sequence begin at a row of their own.
    constexpr int BYTES = 4 * Shape::Br, TILE_BYTES = shared.Q[0].BYTES;
    mbarrier_arrive_expect_tx(shared.full_Q[stage], TILE_BYTES + BYTES);
    shared.Q[stage].load(maps.Q, shared.full_Q[stage], row, at.h, work.b);
    bulk_load(shared.L_and_D[stage], L_and_D.head(work.b, at.h).address(0, stats0), BYTES,
              shared.full_Q[stage]);
    mbarrier_arrive_expect_tx(shared.full_dO[stage], TILE_BYTES + BYTES);
    shared.dO[stage].load(maps.dO, shared.full_dO[stage], row, at.h, work.b);
    bulk_load(shared.L_and_D[stage] + Shape::Br, L_and_D.head(work.b, at.h).address(1, stats0),
              BYTES, shared.full_dO[stage]);
  }
}

// ---- Slopes ------------------------------------------------------------------------------------

/// The slopes of the softcap, in 16 bits, where the warp will store its rows of dS^T.
template <class Operand>
struct SlopesInPanels {
  using T = typename Operand::T;
  Operand rows;

  template <class Scores>
  __device__ void store(const Scores& slopes) const {
    store_operand(rows, InRegisters<T, 1, Scores::WIDTH / 16>(slopes));
    // Read after write: a lane reads what other lanes have stored.
    __syncwarp();
  }
  /// (9.2)  dS^T times the slopes.
  template <class Scores>
  __device__ void multiply_into(Scores& dSt) const {
#pragma unroll
    for (int k = 0; k < Scores::WIDTH / 16; ++k) {
      unsigned block[4];
      rows.load(block, 0, k);
      multiply_block<T>(dSt, 0, k, {block[0], block[1], block[2], block[3]});
    }
  }
};

template <class Operand>
SlopesInPanels(Operand) -> SlopesInPanels<Operand>;  // clang 14 does not deduce it from aggregates

}  // namespace
}  // namespace flash::tensor_cores
