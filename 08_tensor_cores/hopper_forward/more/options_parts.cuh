// 08 Tensor cores, Hopper forward: what options.cuh is made of: the tile sizes, the tiles of keys
// in a window, the thread that loads them, and what a consumer warpgroup does with one.
#pragma once

#include "08_tensor_cores/parts/lazy_softmax.cuh"
#include "08_tensor_cores/parts/panels_forward.cuh"
#include "common/parts/ragged.cuh"
#include "common/parts/score_rule.cuh"

namespace flash::tensor_cores::hopper_forward_more_options {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Stages, bool ScaleFirst = false>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  static constexpr int STAGES = Stages;  // of the rings of K and V
  // Tiles of Q. At 160 shared memory has room for two, which made it a tenth slower.
  static constexpr int Q_STAGES = Width <= 128 || Width == 192 ? 2 : 1;
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread. The total may not exceed the launch's: 65536 / THREADS each, rounded down
  // to a multiple of 8. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : 160;
  template <class T>
  struct Shared : ForwardShared<T, Width, Br, Bc, STAGES, Q_STAGES> {
    Mbarrier empty_Q[Q_STAGES];
    int work_id[Q_STAGES];  // which work Q belongs to
  };
  static constexpr bool SCALE_FIRST = ScaleFirst;                    // see ScoreRule
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

/// The rule of a tile of queries, which in a ragged batch enters the tile's sequence.
template <class Rule>
using RuleOfWork = std::conditional_t<Rule::RAGGED, Rule, const Rule&>;

/// A tile of queries of a head, and the tiles of keys that it visits. Unlike Work's, tiles lie from
/// the first query on: before it a bias has no rows, and a ragged batch has the previous sequence.
/// There all count from the sequence's first row, and the longest tile is numbered first.
template <class Shape>
struct WindowedWork : Work<Shape> {
  struct Tiles {
    int begin, end;
  } tiles;  // from the first that one of the rows sees to before `end`

  template <class Rule>
  __device__ WindowedWork(Rule& rule, const Schedule& schedule, int work_id)
      : Work<Shape>(rule.problem, schedule, work_id) {
    if constexpr (Rule::RAGGED)
      this->query0 = rule.enter(this->tile);
    else
      this->query0 = (schedule.tiles_of_head - 1 - this->tile) * Shape::Br;
    tiles = tiles_seen_by(rule.problem, this->query0, Shape::Br);
  }

  /// By the `rows` rows from `first` on; rows beyond the last query see none.
  template <class SomeProblem>
  __device__ static Tiles tiles_seen_by(const SomeProblem& p, int first, int rows) {
    const int end_key = p.end_key(min(first + rows, p.Nq) - 1);
    const int end = (end_key + Shape::Bc - 1) / Shape::Bc;
    return {first < p.Nq ? p.first_key(first) / Shape::Bc : end, end};
  }
};

/// One thread: loads Q, K and V for a tile of Q, each tile as soon as its buffer is empty. The last
/// tile of a sequence may reach into the next one, whose keys are masked.
template <class T, class Shape, class Rule>
__device__ void produce(Shared<T, Shape>& shared, const Rule& rule, const Maps& maps,
                        const WindowedWork<Shape>& work, int work_id,
                        PipelineState<Shape::Q_STAGES>& Q_ring,
                        PipelineState<Shape::STAGES>& KV_ring) {
  int first_query = 0, first_key = 0;  // of the sequence
  if constexpr (Rule::RAGGED) first_query = rule.offset(0, 0), first_key = rule.offset(0, 1);
  Mbarrier& full_Q = shared.full_Q[Q_ring.stage()];
  const bool any = work.tiles.end > work.tiles.begin;
  // Write after read: the TMA has read the O staged in this buffer.
  // Write after read: the consumers have read the previous index.
  wait_empty(shared.empty_Q[Q_ring.stage()], Q_ring.parity());
  shared.work_id[Q_ring.stage()] = work_id;
  mbarrier_arrive_expect_tx(full_Q, any ? shared.Q[0].BYTES : 0);
  if (any) shared.Q[Q_ring.stage()].load(maps.Q, full_Q, first_query + work.query0, work.h, work.b);
  Q_ring.next();
  for (int j = work.tiles.end - 1; j >= work.tiles.begin; --j, KV_ring.next()) {
    const int stage = KV_ring.stage(), key0 = first_key + j * Shape::Bc;
    // Write after read: all consumers have read the previous K of this stage.
    wait_empty(shared.empty_K[stage], KV_ring.parity());
    mbarrier_arrive_expect_tx(shared.full_K[stage], shared.K[stage].BYTES);
    shared.K[stage].load(maps.K, shared.full_K[stage], key0, work.kv_head, work.b);
    // Write after read: all consumers have read the previous V of this stage.
    wait_empty(shared.empty_V[stage], KV_ring.parity());
    mbarrier_arrive_expect_tx(shared.full_V[stage], shared.V[stage].BYTES);
    shared.V[stage].load(maps.V, shared.full_V[stage], key0, work.kv_head, work.b);
  }
}

/// LazySoftmax by a rule.
template <class Shape, class Rule>
struct LazySoftmaxByRule {
  using Scores = Accumulators<1, Shape::KEY_FRAGMENTS>;
  Rows<2>& m;
  Rows<2>& l;
  const Rule& rule;
  int head, query0;                             // query0: the first of the rows
  float scale_log2 = rule.late_scale * LOG2_E;  // c

  // Tiles before lazy_begin or from lazy_end on may need a mask in these rows, and are exact.
  int lazy_end = Shape::SCALE_FIRST ? 0 : rule.problem.end_key(query0) / Shape::Bc;
  // opaque(): nvcc would compute it again in each tile.
  int lazy_begin = opaque((rule.problem.first_key(query0 + 15) + Shape::Bc - 1) / Shape::Bc);

  __device__ bool is_lazy(int j) const {
    return !Shape::SCALE_FIRST && lazy_begin <= j && j < lazy_end;
  }

  /// (9.7)  S is capped, unless exact() does it.
  __device__ void cap(Scores& S) {
    if constexpr (Rule::OPTIONS && !Shape::SCALE_FIRST) {
      if (rule.problem.softcap != 0.0f) rule.cap(S, NoSlope{});
    }
  }

  __device__ bool try_lazy(Scores& S) { return exponentiate_if_it_fits(S, m, l, scale_log2); }

  /// (8.1)  S = Q K^T of tile j again, of this warp's rows.
  template <class QueryRows, class KeyTile>
  __device__ void repair(Scores& S, const QueryRows& Q, KeyTile& K, int j) {
    S.each([](float& s, int) { s = 0.0f; });
    add_product(S, Q.left(), K.transposed());
    cap(S);
    lazy_end = j - BACKOFF_TILES;
  }

  /// (6.2), (8.2)  S of tile j becomes P with the true maximum. Returns the factor that rescales O.
  __device__ Rows<2> exact(Scores& S, int j) {
    bool subtract_first = Shape::SCALE_FIRST;
    if constexpr (Shape::SCALE_FIRST) {
      if (Rule::OPTIONS) subtract_first = rule.subtract_first();
      rule.apply(S, head, query0, j * Shape::Bc);
    } else {
      rule.mask(S, query0, j * Shape::Bc);
    }
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2, subtract_first);
    l = alpha * l + lane_sum(S);
    // If a row has no maximum yet, or c m is large, the next tile, j - 1, takes the maximum, too.
    const bool may_stay =
        in_all_rows(m, [&](float x) { return fabsf(scale_log2 * x) <= LARGE_EXPONENT; });
    if (!may_stay) lazy_end = min(lazy_end, j - 1);
    return alpha;
  }
};

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_more_options
