// FLOP and byte formulas that all stages share, and what a pass should do by the formulas of the chapters, which tests compare with the
// simulator's counts.
#pragma once

#include "common/attention/tensor.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flash {

/// Pairs (query, key) of one head that the mask leaves visible.
std::int64_t visible_pairs(const FullProblem&);

/// FLOPs by the usual convention: two products of 2*pairs*d each forward, 2.5 times that backward (five products).
/// 4*B*H*Nq*Nk*d forward when nothing is masked. Counts the true d, never a padded one.
double flops(const FullProblem&, Pass);

/// Bytes that any implementation must move: each input read once, each output written once.
/// Forward: Q, K, V, bias in; O, LSE out. Backward: Q, K, V, O, dO, LSE, bias in; dQ, dK, dV out, and the bias's gradient.
double compulsory_bytes(const FullProblem&, Pass);

/// Of one head: the pairs of a tile of Q and a tile of K of which any pair (query, key) is visible.
struct Visits {
  std::int64_t tiles = 0;                         ///< such pairs of tiles
  std::int64_t pairs = 0;                         ///< pairs of a query and a key in them, seen or not
  std::int64_t queries = 0;                       ///< rows of the Q tiles that visit a K tile, for each K tile
  std::int64_t keys = 0;                          ///< rows of the K tiles that a Q tile visits, for each Q tile
  std::int64_t seeing = 0;                        ///< rows of the Q tiles that visit any
  std::int64_t seen = 0;                          ///< rows of the K tiles that any visits
  std::int64_t query_tiles = 0, key_tiles = 0;    ///< those that visit none included
  std::int64_t seeing_tiles = 0, seen_tiles = 0;  ///< Q tiles that visit any, K tiles that any visits
};
Visits visits(const FullProblem&, const Tiles&);

/// What kernels read of a ragged batch: the tiles of all sequences, of queries or in a backward pass of keys, two numbers each, a sequence and
/// the first of its rows. Those that visit most tiles of the other operand come first; tiles that visit none are last, but must be there, since
/// somebody has to write their zeros.
std::vector<int> longest_first(const FullProblem&, Pass, const Tiles&);

/// How many launches of a backward kernel give each row of dQ one sum per launch: keys of tiles so far apart share no query.
int launches_of(const FullProblem&, int Bc);

/// Of one batch and key/value head, where the queries of its group are packed into tiles of Br rows and the keys are split into parts of Bc:
/// a block per tile and part, which visits its keys `step` at a time.
struct SplitVisits {
  std::int64_t rows = 0;    ///< queries of all heads of the group
  std::int64_t splits = 0;  ///< parts of the keys
  std::int64_t blocks = 0;  ///< those of which no row sees a key included
  std::int64_t steps = 0;   ///< of all blocks
  std::int64_t keys = 0;    ///< in them
  std::int64_t pairs = 0;   ///< visible pairs; the last row counts again for each missing row of its tile
};
SplitVisits split_visits(const Problem&, const Tiles&, int step);

/// Of one tensor or workspace.
struct MemoryTraffic {
  std::int64_t read = 0, written = 0;
  std::optional<std::int64_t> sectors{};  ///< unset: warps access it along its rows, 32 bytes per sector
};

/// By the name of the tensor.
using TrafficByTensor = std::map<std::string, MemoryTraffic>;

/// Variant::predict gives the traffic in elements. An unset number has no formula.
struct Prediction {
  TrafficByTensor tensors{};  ///< empty: nothing is predicted
  std::optional<std::int64_t> sectors{}, barriers{}, warp_operations{};
};

/// Of all tensors, without sectors.
inline MemoryTraffic sum_of(const TrafficByTensor& tensors) {
  MemoryTraffic sum;
  for (const auto& [name, moved] : tensors) sum.read += moved.read, sum.written += moved.written;
  return sum;
}

/// (2.9)  Of fp32 elements, where the accesses of a warp begin and end with a sector.
inline std::optional<std::int64_t> sectors_of(const TrafficByTensor& tensors, const Problem& p) {
  if (p.Nk % 8 != 0 || p.d % 8 != 0 || p.Nq % 8 != 0 || p.bias != BiasKind::none) return {};
  std::int64_t sum = 0;
  for (const auto& [name, moved] : tensors) sum += moved.sectors.value_or((moved.read + moved.written) / 8);
  return sum;
}

}  // namespace flash
