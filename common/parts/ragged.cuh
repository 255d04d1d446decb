// The rule of a run with chapter 09's options: RaggedRule, by which a block finds its sequence and
// the rows of it; Dropping, for a run that drops weights; and with_rule_of(), which chooses. For
// the kernels more/options.cuh of 06, 07 and 08.
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
