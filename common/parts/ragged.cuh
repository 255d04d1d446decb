// Ragged batches, of several lengths, and dropout (chapter 09): how a block finds its sequence and
// the rows of it, which weights it drops, and, in with_rule_of(), which rule a run has. For the
// kernels more/options.cuh of 06, 07 and 08.
#pragma once

#include "common/attention/dropout.hpp"
#include "common/parts/score_rule.cuh"

namespace flash {
namespace {

/// For a ragged batch. A block enters the sequence of its tile; from then on the problem and all
/// rows are the sequence's own.
struct RaggedRule : OptionsRule {
  static constexpr bool RAGGED = true;
  Tensor<const int> offsets, order;  // Attention::offsets, Attention::order
  int sequence;                      // once entered

  /// Enters the sequence of the n-th tile. Returns the tile's first row.
  __device__ int enter(int n) {
    const Matrix<const int> tiles = order.head(0, 0);
    sequence = tiles(n, 0);
    problem.Nq = offset(1, 0) - offset(0, 0);
    problem.Nk = offset(1, 1) - offset(0, 1);
    bias.diagonal = problem.Nk - problem.Nq;
    return tiles(n, 1);
  }

  /// Some workspaces have whole blocks of rows for each sequence, one after another. The sequence's
  /// first row in them.
  __device__ int first_row(int rows_of_block) const {
    return (offset(0, 0) / rows_of_block + sequence) * rows_of_block;
  }

  /// Enters the sequence that such a row belongs to. Returns the row's query, which is Nq or more
  /// in rows that fill up a block.
  __device__ int enter_row(int row, int rows_of_block) {
    const int count = offsets.rows - 1;
    int step = 1, found = 0;
    while (step < count) step *= 2;
    for (; step > 0; step /= 2) {  // always the same number of steps: a warp does not diverge
      sequence = min(found + step, count - 1);
      if (first_row(rows_of_block) <= row) found = sequence;
    }
    sequence = found;
    problem.Nq = offset(1, 0) - offset(0, 0);
    return row - first_row(rows_of_block);
  }

  /// The number of queries (of = 0) or keys (of = 1) before the sequence, or with end = 1, up to
  /// its end. Kernels read it again when they need it: there is no register left to keep it in.
  __device__ int offset(int end, int of) const { return offsets.head(0, 0)(sequence + end, of); }
};

/// A tensor with a row per query, or per key: in a ragged batch only the rows of the sequence that
/// the block has entered, else all. Without sequences it is the tensor itself, not a copy: a copy
/// would change the code of kernels that have no use for it.
template <class Rule, class T>
requires(Rule::RAGGED) __device__ Tensor<T> queries_of(const Rule& rule, Tensor<T> all) {
  all.narrow(rule.offset(0, 0), rule.problem.Nq);
  return all;
}
template <class Rule, class T>
requires(Rule::RAGGED) __device__ Tensor<T> keys_of(const Rule& rule, Tensor<T> all) {
  all.narrow(rule.offset(0, 1), rule.problem.Nk);
  return all;
}
template <class Rule, class T>
requires(!Rule::RAGGED) __device__ const Tensor<T>& queries_of(const Rule&, const Tensor<T>& all) {
  return all;
}
template <class Rule, class T>
requires(!Rule::RAGGED) __device__ const Tensor<T>& keys_of(const Rule&, const Tensor<T>& all) {
  return all;
}

/// A rule whose run drops weights. It is a type of its own, so that kernels without dropout keep
/// their code.
template <class Rule>
struct Dropping : Rule {
  DropMask dropout;
};
template <class Rule>
concept Drops = requires(const Rule& rule) {
  rule.dropout;
};

/// (9.12), (9.13)  P or dP becomes P o Z or dP o Z. Its tile begins at query query0, which is even,
/// and at key key0, a multiple of 32, of head h (over all batches).
template <class Rule, class Tile>
__device__ void drop(const Rule& rule, Tile& P, int h, int query0, int key0) {
  if constexpr (Drops<Rule>) {
    // The batch has one element. opaque(): no register keeps the number of the head through the
    // loop.
    if constexpr (Rule::RAGGED) h = opaque(h + rule.sequence * rule.problem.H);
    constexpr int rows = Tile::ROWS == 1 ? 1 : 2, apart = DropMask::APART / Tile::LANES;
    static_assert(Tile::COLS % (2 * apart) == 0, "a thread has both keys of a call");
#pragma unroll
    for (int r = 0; r < Tile::ROWS; r += rows) {
#pragma unroll
      for (int c = 0; c < Tile::COLS; ++c) {
        if (c / apart % 2 != 0) continue;  // drawn with column c - apart
        const FourWords drawn = rule.dropout.draw(h, query0 + Tile::row(r), key0 + Tile::col(c));
#pragma unroll
        for (int n = 0; n < 2 * rows; ++n) {
          const int row = r + n / 2, col = c + n % 2 * apart;
          P.elements[row][col] *= rule.dropout.factor(drawn, Tile::row(row), Tile::col(col));
        }
      }
    }
  }
}

/// Calls f(rule, tiles) with a RaggedRule if the run's batch is ragged, else an OptionsRule, each
/// also Dropping: the same kernel, compiled for each. `tiles`: of a batch that is not ragged, for a
/// head.
template <class F>
void with_rule_of(const Attention& a, unsigned tiles, F f) {
  const OptionsRule rule = score_rule<OptionsRule>(a);
  const DropMask mask(a.problem.dropout);
  const bool drops = a.problem.dropout.probability != 0.0f;
  if (a.problem.sequences.empty())
    return drops ? f(Dropping<OptionsRule>{rule, mask}, tiles) : f(rule, tiles);
  const RaggedRule ragged{rule, view<const int>(a.offsets), view<const int>(a.order), 0};
  tiles = static_cast<unsigned>(a.order.shape[2]);
  return drops ? f(Dropping<RaggedRule>{ragged, mask}, tiles) : f(ragged, tiles);
}

}  // namespace
}  // namespace flash
