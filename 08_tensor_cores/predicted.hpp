// What chapter 08 predicts.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/registry.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace flash::tensor_cores {

/// Is the kernel's file `first`, such as forward/3_pipeline, or a later step of the same ladder? Files of more/ have no number, and stand alone.
inline bool is_from(const Variant& v, std::string_view first) {
  const auto place = [](std::string_view path) {
    const std::size_t name = path.rfind('/') + 1;
    const int number = std::atoi(path.data() + name);
    return std::pair{path.substr(0, number > 0 ? name : path.find('.')), number};
  };
  const std::string_view file = v.file;
  const auto [ladder, from] = place(first);
  const auto [folder, number] = place(file.substr(file.find('/') + 1));
  return folder == ladder && number >= from;
}

/// The last row of a table that holds for the kernel; null: none does.
template <class Row, std::size_t count>
const Row* row_of(const Row (&rows)[count], const Variant& v) {
  const auto found = std::find_if(std::rbegin(rows), std::rend(rows), [&](const Row& row) { return is_from(v, row.first); });
  return found == std::rend(rows) ? nullptr : &*found;
}

inline std::int64_t up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// The biases that a head looks up, of all pairs in the tiles, seen or not; ALiBi's slope once for each of `threads` and each tile.
inline std::int64_t biases(const FullProblem& p, const Visits& v, int threads) {
  return p.bias == BiasKind::none ? 0 : p.bias == BiasKind::alibi ? threads * v.tiles : v.pairs;
}

/// visits() of the TMA, which loads whole tiles: in a ragged batch they may reach into the next sequence.
inline Visits visits_by_tma(const FullProblem& p, const Tiles& tiles) {
  Visits v = visits(p, tiles);
  if (p.sequences.empty()) return v;
  v.queries = v.keys = v.seeing = v.seen = 0;
  const auto [Br, Bc] = tiles;
  for (int n = 0; n < p.sequences.count(); ++n) {
    const OptionsProblem s = p.sequence(n);
    const int queries = p.Nq - p.sequences.queries[n], keys = p.Nk - p.sequences.keys[n];  // from the sequence's first on
    for (int i = 0; i < s.Nq; i += Br) {
      const int first = s.first_key(i, Bc), end = s.end_key(std::min(i + Br, s.Nq) - 1), rows = std::min(Br, queries - i);
      if (first < end) v.seeing += rows;
      for (int j = first; j < end; j += Bc) v.queries += rows, v.keys += std::min(Bc, keys - j);
    }
    for (int j = 0; j < s.Nk; j += Bc) {
      if (s.first_query(j) < s.end_query(std::min(j + Bc, s.Nk) - 1)) v.seen += std::min(Bc, keys - j);
    }
  }
  return v;
}

/// visits() of tiles of Q that lie from the end on, as if there were queries before the first.
inline Visits visits_from_the_end(FullProblem p, const Tiles& tiles) {
  const int missing = static_cast<int>(up(p.Nq, tiles.Br) - p.Nq) / 64 * 64;  // of whole warpgroups
  p.Nq += missing;
  Visits v = visits(p, tiles);
  if (v.seeing_tiles == v.query_tiles) v.seeing -= missing;
  return v;
}

/// (8.9)  Of tiles that a lazy maximum computes twice, which takes scores that grow on the way, the second time is left out.
inline TrafficByTensor predicted_forward(const FullProblem& p, const Visits& v, const TileChoice& choice) {
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  TrafficByTensor moved{{"O", {0, heads * p.Nq * p.d}}, {"L", {0, heads * p.Nq}}};
  moved["Q"].read = heads * v.seeing * p.d;
  for (const char* const tensor : {"K", "V"}) moved[tensor].read = heads * v.keys * p.d;
  moved["bias"].read = heads * biases(p, v, choice.threads);
  return moved;
}

/// Whether a warp's rows of Q stay in registers: the 32 that hold 16 rows of 128 columns or 32 rows of 64.
inline bool Q_stays(const FullProblem& p, const TileChoice& choice) {
  const int width = p.d <= 128 ? static_cast<int>(up(p.d, 32)) : 256;
  return width * choice.tiles.Br / (choice.threads / 32) <= 2048;
}

/// What differs between the forward steps: how often a block meets at __syncthreads(), named barriers and mbarriers not counted, and how it loads.
struct ForwardStep {
  const char* first = "";               ///< the row holds from this step on, until another row of its ladder does
  int per_pair = 0, per_tile_of_Q = 0;  ///< of a tile of Q and one of K that it visits; of any tile of Q
  int per_seeing = 0;                   ///< of a tile of Q that visits any
  bool may_keep_Q = false;              ///< one more for those if Q_stays()
  bool specialized = false;             ///< a warp only loads
  bool draws = false;                   ///< a block draws one tile of Q after the other
  bool from_the_end = false;            ///< tiles of Q lie from the end on
};
constexpr ForwardStep forward_steps[] = {
    {.first = "forward/1_mma", .per_pair = 2, .per_seeing = -1},
    {.first = "forward/3_pipeline", .per_pair = 1},
    {.first = "forward/7_fitted", .per_pair = 1, .may_keep_Q = true},
    // Per tile of Q: behind the initialisation of the mbarriers. From `specialized` on there is no other.
    {.first = "hopper_forward/1_tma", .per_pair = 1, .per_tile_of_Q = 1, .from_the_end = true},
    {.first = "hopper_forward/3_specialized", .per_tile_of_Q = 1, .specialized = true, .from_the_end = true},
    {.first = "hopper_forward/7_scheduled", .per_tile_of_Q = 1, .specialized = true, .draws = true, .from_the_end = true},
    {.first = "hopper_forward/more/ping_pong", .per_tile_of_Q = 1, .specialized = true, .from_the_end = true},
    {.first = "hopper_forward/more/options", .per_tile_of_Q = 1, .specialized = true, .draws = true},
};

inline Visits visits_of(const ForwardStep& step, const FullProblem& p, const Tiles& tiles) {
  return step.from_the_end ? visits_from_the_end(p, tiles) : step.draws ? visits_by_tma(p, tiles) : visits(p, tiles);
}

/// A step's __syncthreads() in all blocks.
inline std::optional<std::int64_t> forward_barriers(const ForwardStep& step, const FullProblem& p, const TileChoice& choice,
                                                    const DeviceLimits& limits) {
  const Visits v = visits_of(step, p, choice.tiles);
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  if (step.draws && heads * v.query_tiles > limits.multiprocessors) return {};  // blocks take several tiles
  const int per_seeing = step.per_seeing + (step.may_keep_Q && Q_stays(p, choice));
  return heads * (step.per_pair * v.tiles + step.per_tile_of_Q * v.query_tiles + per_seeing * v.seeing_tiles);
}

/// The same where a warp only loads. Each warpgroup of 64 rows looks up biases of the tiles that it sees. In a ragged batch the consumers and
/// the producer look up the tile and the ends of its sequence, the producer where Q, K and V begin, the consumers O and L.
inline TrafficByTensor predicted_specialized(const ForwardStep& step, const FullProblem& p, const TileChoice& choice) {
  TrafficByTensor moved = predicted_forward(p, visits_of(step, p, choice.tiles), choice);
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  if (p.bias != BiasKind::none) moved["bias"].read = heads * biases(p, visits(p, {64, choice.tiles.Bc}), 128);
  if (step.draws) {
    const std::int64_t work = heads * visits(p, choice.tiles).query_tiles, consumers = choice.threads - 128;
    moved["counter"] = {work + 1, work + 1};  // drawn from once for each tile of Q, and set back
    if (!p.sequences.empty())
      moved["order"].read = work * 2 * (consumers + 1), moved["offsets"].read = work * (6 * consumers + 6);
  }
  return moved;
}

/// (K.5)  Decode. The parts' L is read for every four columns of O, Q so often in each split.
inline TrafficByTensor moved_by_splits(const FullProblem& p, const SplitVisits& v, int reads_of_Q) {
  const std::int64_t kv_heads = std::int64_t{p.B} * p.Hkv, rows = kv_heads * v.rows, parts = rows * v.splits;
  TrafficByTensor moved{{"part_O", {parts * p.d, parts * p.d}},
                        {"part_L", {parts * (p.d / 4), parts}},
                        {"O", {0, rows * p.d}},
                        {"L", {0, rows}},
                        {"bias", {p.bias == BiasKind::none ? 0 : kv_heads * v.pairs, 0}}};
  moved["Q"].read = reads_of_Q * parts * p.d;
  for (const char* const tensor : {"K", "V"}) moved[tensor].read = kv_heads * v.keys * p.d;
  return moved;
}

/// Each warp reads Q. Barriers: one per tile of keys, and two around the warps' parts. Warp operations: in each tile 4 products and 2 ldmatrix
/// for 16 columns of d, and two halvings of the maxima of a lane's two rows; of their sums once.
inline Prediction predicted_decode(const FullProblem& p, const TileChoice& choice) {
  const int warps = choice.threads / 32;
  const SplitVisits v = split_visits(p, choice.tiles, 16 * warps);
  const std::int64_t kv_heads = std::int64_t{p.B} * p.Hkv, rows = kv_heads * v.rows, parts = rows * v.splits;
  const std::int64_t width = p.d <= 64 ? 64 : up(p.d, 128), per_tile = 6 * width / 16 + 4;
  std::optional<std::int64_t> sectors;
  // Otherwise there are copies of zeros, whose addresses count, and warps that merge several rows.
  if (p.d == width && p.d >= 128 && p.Nk % (16 * warps) == 0 && p.bias == BiasKind::none) {
    const std::int64_t half = (warps * parts * p.d) / 8;  // Q: 4 lanes read 16 bytes of a row
    sectors =
        half + kv_heads * 2 * v.keys * p.d / 16 + 2 * parts * p.d / 8 + parts * (width / 128 + 1) + rows * p.d / 16 + rows;
  }
  return {moved_by_splits(p, v, warps), sectors, kv_heads * (v.steps + 2 * v.blocks),
          kv_heads * warps * (v.steps * per_tile + 4 * v.blocks)};
}

/// Hopper's meets at one barrier: behind the initialisation of the mbarriers. One split writes O and L at once.
inline Prediction predicted_decode_hopper(const FullProblem& p, const TileChoice& choice) {
  const SplitVisits v = split_visits(p, choice.tiles, p.d > 128 ? 64 : 128);
  TrafficByTensor moved = moved_by_splits(p, v, 1);
  if (v.splits == 1) moved["part_O"] = moved["part_L"] = {};
  return {moved, {}, std::int64_t{p.B} * p.Hkv * v.blocks, {}};
}

/// The options, with or without the backward pass after it. In a ragged batch each thread looks up its block's tile, the ends of the
/// sequence, and where it begins in Q, K, V, O and L. A warp looks up no biases of tiles that none of its rows sees.
inline Prediction predicted_options(const FullProblem& p, const TileChoice& choice, const DeviceLimits& limits) {
  TrafficByTensor moved = predicted_forward(p, visits(p, choice.tiles), choice);
  const Tiles of_warp{choice.tiles.Br / (choice.threads / 32), choice.tiles.Bc};
  moved["bias"].read = std::int64_t{p.B} * p.H * biases(p, visits(p, of_warp), 32);
  if (!p.sequences.empty()) {
    const std::int64_t threads = std::int64_t{p.B} * p.H * visits(p, choice.tiles).query_tiles * choice.threads;
    moved["order"].read = 2 * threads, moved["offsets"].read = (4 + 5) * threads;
  }
  return {moved, {}, forward_barriers({.per_pair = 1, .may_keep_Q = true}, p, choice, limits), {}};
}

/// Subgroups that divide a group: by the heads of the workspace for what they sum.
inline std::int64_t subgroups_of(const Variant& v, const Problem& p) {
  for (const WorkspaceSpec& spec : v.workspace(p, Pass::backward)) {
    if (spec.name == std::string_view("dK_partial")) return spec.shape[1] / p.Hkv;
  }
  return 1;
}

/// What differs between the backward steps and kernels.
struct BackwardStep {
  const char* first = "";    ///< as above
  bool two_kernels = false;  ///< the second one is for dQ
  bool halved = false;       ///< two halves of a block share the pairs of products
  bool hopper = false;       ///< the TMA loads
  bool specialized = false;  ///< by a warpgroup that does nothing else
  bool ordered = false;      ///< blocks take turns at dQ
  bool divided = false;      ///< the heads of a group are divided among blocks
  bool relay = false;        ///< warpgroups share products, not keys
  bool options = false;
};
constexpr BackwardStep backward_steps[] = {
    {.first = "backward/1_seven_products", .two_kernels = true},
    {.first = "backward/2_five_products"},
    {.first = "backward/3_halves", .halved = true},
    {.first = "backward/more/options", .options = true},
    {.first = "backward/more/bias_gradient", .options = true},
    {.first = "hopper_backward/1_warpgroups", .hopper = true},
    {.first = "hopper_backward/2_ring", .hopper = true, .specialized = true},
    {.first = "hopper_backward/more/general", .hopper = true, .specialized = true},
    {.first = "hopper_backward/more/options", .hopper = true, .specialized = true, .options = true},
    {.first = "hopper_backward/more/ordered", .hopper = true, .specialized = true, .ordered = true},
    {.first = "hopper_backward/more/divided", .hopper = true, .specialized = true, .ordered = true, .divided = true},
    {.first = "hopper_backward/more/relay", .relay = true},
};

/// (8.17)
inline TrafficByTensor predicted_backward(const BackwardStep& step, const FullProblem& p, const TileChoice& choice,
                                          std::int64_t subgroups) {
  const auto [Br, Bc] = choice.tiles;
  const bool two_kernels = step.two_kernels, relay = step.relay;
  const Visits v = step.hopper ? visits_by_tma(p, choice.tiles) : visits(p, choice.tiles),
               of_dQ = visits(p, {Bc, Br});  // the second kernel turns the tiles
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_heads = std::int64_t{p.B} * p.Hkv, Nq = p.Nq, Nk = p.Nk, d = p.d;
  const std::int64_t width = relay ? (d <= 160 ? 160 : d <= 192 ? 192 : 256) : d <= 128 ? up(d, 32) : 256;
  // Blocks that share a tile of keys: at width 256 steps 1 and 2 have no room for all columns of dK and dV, and compute scores twice.
  const std::int64_t column_blocks = !step.halved && !relay && d > 128 ? 2 : 1;
  const int lookers = step.halved        ? choice.threads / 2
                      : relay            ? 128  // the warpgroup of P
                      : step.specialized ? choice.threads - 128
                                         : choice.threads;
  const MemoryTraffic gradient{0, kv_heads * Nk * d};
  TrafficByTensor moved{{"O", {heads * Nq * d, 0}}, {"dO", {heads * Nq * d, 0}},
                        {"L", {heads * Nq, 0}},     {"dQ", {0, heads * Nq * d}},
                        {"dK", gradient},           {"dV", gradient}};
  for (const char* const tensor : {"Q", "dO"})
    moved[tensor].read += heads * (column_blocks * v.queries + (two_kernels ? Nq : 0)) * d;
  for (const char* const tensor : {"K", "V"}) {
    moved[tensor].read += (column_blocks * subgroups * kv_heads * v.seen + (two_kernels ? heads * of_dQ.keys : 0)) * d;
    if (step.divided) {
      const std::int64_t rows = subgroups * kv_heads;
      moved[std::string("d") + tensor + "_partial"] = {rows * Nk * d, rows * up(Nk, Bc) * width};
    }
  }
  moved["LD"] = {2 * column_blocks * heads * v.tiles * Br, 2 * heads * up(Nq, 128)};  // of whole tiles
  moved["bias"].read = column_blocks * heads * biases(p, v, lookers);
  if (two_kernels) {
    moved["LD"].read += heads * 4 * 2 * up(Nq, Bc);  // by each of the 4 lanes that share a row
    moved["bias"].read += heads * biases(p, of_dQ, choice.threads);
  } else {
    const std::int64_t added = heads * v.tiles * Br * width;
    const std::int64_t in_order =
        Nq / 16 * 16 + 2 * std::min<std::int64_t>(Nq % 16, 8);  // rows g and g + 8, if there is a row g
    moved["dQ_accum"] = {added + heads * in_order * d, added + heads * up(Nq, 128) * width};
    if (step.ordered) {  // the first tile of keys stores; only what sees no key is cleared
      const std::int64_t unseen = p.causal ? std::max<std::int64_t>(0, Nq - Nk) : 0;
      const std::int64_t tiles = up(Nq, Br) / Br - unseen / Br;  // that any key sees
      moved["dQ_accum"].read -= heads * tiles * Br * width;
      if (unseen == 0) moved["dQ_accum"].written = added;
      const std::int64_t blocks = subgroups * kv_heads * (up(Nk, Bc) / Bc);
      // Each block draws a ticket, and one of them sets the tickets back.
      moved["counter"] = {blocks + 1, blocks + 1};
      moved["turns"] = {heads * v.tiles, heads * v.tiles};  // passed on, or set back; how often blocks ask nobody knows
    }
  }
  return moved;
}

/// The options backward. In a ragged batch L and D, and the sum of dQ, have up to 128 rows more per sequence. Each thread looks up its block's tile
/// and the ends of the sequence, and where it begins: for K and V, dK and dV, and in each tile for Q, dO, dQ, and L and D. On Hopper only
/// consumers look for dK and dV, one thread, which looks up the block again, and the producer for the loads, the adder for dQ; and the producer looks up the
/// block that it prefetches for. Threads of the kernels before and after look for the sequence of their row.
inline TrafficByTensor predicted_options_backward(const BackwardStep& step, const FullProblem& p, const TileChoice& choice) {
  TrafficByTensor moved = predicted_backward(step, p, choice, 1);
  if (p.sequences.empty()) return moved;
  const Visits v = visits(p, choice.tiles);
  const std::int64_t column_blocks = p.d > 128 ? 2 : 1, kv_blocks = column_blocks * p.Hkv, in_tiles = column_blocks * p.H;
  const std::int64_t width = p.d <= 128 ? up(p.d, 32) : 256, chunks = p.d / 8, threads = choice.threads;
  const auto count = static_cast<std::uint64_t>(p.sequences.count());
  const std::int64_t rows = up(p.Nq, 128) + 128 * p.sequences.count();
  std::int64_t of_16 = 0;  // rows g of 16 that exist; convert reads g + 8 with them
  for (int s = 0; s < p.sequences.count(); ++s) of_16 += p.sequence(s).Nq / 16 * 8 + std::min(p.sequence(s).Nq % 16, 8);
  const std::int64_t added = p.H * v.tiles * choice.tiles.Br * width;
  moved["LD"].written = 2 * p.H * rows;
  moved["dQ_accum"] = {added + p.H * 2 * of_16 * 8 * chunks, added + p.H * rows * width};
  const std::int64_t prefetching =
      step.hopper ? std::max<std::int64_t>(0, kv_blocks * v.key_tiles - DeviceLimits{}.multiprocessors) : 0;
  moved["order"].read = kv_blocks * v.key_tiles * 2 * (threads + step.hopper) + 2 * prefetching;
  const std::int64_t to_find = std::bit_width(count - 1) + 1 + 3;
  const auto of_row = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(width / 8)));  // threads of prepare
  const std::int64_t of_blocks = step.hopper
                                     ? v.key_tiles * (4 * threads + 2 * (threads - 128) + 4 + 2 + 4 + 2) + 2 * v.seen_tiles
                                     : ((4 + 2) * v.key_tiles + 2 * v.seen_tiles) * threads;
  moved["offsets"].read = kv_blocks * of_blocks + 6 * prefetching + in_tiles * v.tiles * (step.hopper ? 0 : 4 * threads) +
                          p.H * (rows * of_row + up(rows / 2 * width / 8, 256)) * to_find +
                          p.H * (p.Nq * (2 * chunks + 1) + of_16 * chunks);
  return moved;
}

/// (9.17) in 16 bits: the options backward and a kernel over square tiles of the bias.
inline TrafficByTensor predicted_bias_gradient(const BackwardStep& step, const FullProblem& p, const TileChoice& choice) {
  TrafficByTensor moved = predicted_options_backward(step, p, choice);
  const int side = choice.tiles.Br >= 32 ? 64 : 32;
  const Visits v = visits(p, {side, side});
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  for (const char* const tensor : {"Q", "dO"}) moved[tensor].read += heads * v.queries * p.d;
  for (const char* const tensor : {"K", "V"}) moved[tensor].read += heads * v.keys * p.d;
  moved["LD"].read += 2 * heads * v.tiles * side;
  moved["bias"].read += heads * v.pairs;
  moved["dBias"].written = elements_of(bias_shape(p));
  return moved;
}

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass pass, const TileChoice& choice,
                            const DeviceLimits& limits) {
  if (v.name == std::string_view("decode")) return predicted_decode(p, choice);
  if (v.name == std::string_view("decode_hopper")) return predicted_decode_hopper(p, choice);
  if (v.name == std::string_view("options")) return predicted_options(p, choice, limits);
  if (const ForwardStep* const step = row_of(forward_steps, v)) {
    return {step->specialized ? predicted_specialized(*step, p, choice)
                              : predicted_forward(p, visits_of(*step, p, choice.tiles), choice),
            {},
            forward_barriers(*step, p, choice, limits),
            {}};
  }
  if (const BackwardStep* const step = row_of(backward_steps, v)) {
    if (pass == Pass::forward) return predicted_options(p, choice, limits);
    if (v.name == std::string_view("bias_gradient")) return {predicted_bias_gradient(*step, p, choice)};
    return {step->options ? predicted_options_backward(*step, p, choice)
                          : predicted_backward(*step, p, choice, subgroups_of(v, p))};
  }
  return {};
}

}  // namespace flash::tensor_cores
