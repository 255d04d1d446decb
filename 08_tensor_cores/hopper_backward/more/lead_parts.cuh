// 08 Tensor cores, Hopper backward: what lead_by_rule.cuh is made of: tile sizes, a block's work
// and loads, and the slopes of a softcap.
#pragma once

#include "08_tensor_cores/backward/more/options_parts.cuh"
#include "08_tensor_cores/hopper_backward/more/general_parts.cuh"
#include "08_tensor_cores/hopper_backward/shapes.hpp"
#include "08_tensor_cores/parts/add_dQ.cuh"
#include "08_tensor_cores/parts/produce.cuh"

namespace flash::tensor_cores {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
/// DQStages: buffers of dQ, each with an adder. Makers: warpgroups that multiply dQ.
template <int Width_, int Br_, int Bc_, int DQStages = 1, int Makers = 1>
struct LeadShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8, COL_FRAGMENTS = Width / 8;  // of S^T; of dK, dV
  // Of the ring of Q and dO; tiles of dS; of the ring of dQ.
  static constexpr int STAGES = 2, DS_STAGES = 2, DQ_STAGES = DQStages, MAKERS = Makers;
  static constexpr int CONSUMERS = Bc / WARPGROUP_ROWS, CONSUMER_THREADS = CONSUMERS * WARPGROUP,
                       THREADS = CONSUMER_THREADS + WARPGROUP;
  // Registers per thread: 24 + 256 + 224, since the maker holds P^T, dS^T and dQ together; two
  // makers 24 + 240 + 240: as many as 3 * 168 at launch. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, MAKER_REGISTERS = MAKERS == 1 ? 256 : 240,
                       RUNNER_REGISTERS = 480 - MAKER_REGISTERS;
  template <class T>
  struct Shared : BackwardShared<T, Width, Br, Bc, STAGES, DS_STAGES> {
    alignas(128) float dQ[DQ_STAGES][Br * Width];  // in the layout of dQ_accum
    Mbarrier full_dSt[DS_STAGES], full_dQ[DQ_STAGES], empty_dQ[DQ_STAGES];
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
  static_assert(DS_STAGES == STAGES, "tiles of dS go by the stage of their Q and dO");
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

/// produce(), in a ragged batch of the sequence that the rule has entered. Its tiles are rows of
/// the whole batch, while its L and D have rows of their own. A tile may reach into the next
/// sequence: those keys are masked, and those queries have L = inf, so that P is 0.
template <class T, class Shape, class Rule, class Work>
__device__ void produce_sequence(Shared<T, Shape>& shared, const BackwardMaps& maps,
                                 const Rule& rule, Tensor<const float> L_and_D, Work work) {
  if constexpr (Rule::RAGGED) {
    const int row0 = rule.offset(0, 0);  // of its queries in the batch
    work.first_query += row0, work.end_query += row0, work.key0 += rule.offset(0, 1);
    L_and_D.data += row_of(rule, 0) - row0;
  }
  produce<T, Shape>(shared, maps, rule.problem, L_and_D, work);
}

/// add_dQ(), likewise: in dQ_accum, too, the sequence has rows of its own.
template <class T, class Shape, class Rule, class Work>
__device__ void add_dQ_of_sequence(Shared<T, Shape>& shared, const Rule& rule,
                                   const Tensor<float>& dQ_accum, Work work) {
  if constexpr (Rule::RAGGED)
    work.first_query += row_of(rule, 0), work.end_query += row_of(rule, 0);
  add_dQ<T, Shape>(shared, rule.problem, dQ_accum, work);
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
