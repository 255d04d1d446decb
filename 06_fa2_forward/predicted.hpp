// What chapter 06 predicts.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/registry.hpp"

#include <bit>
#include <cstdlib>
#include <string_view>

namespace flash::fa2_forward {

/// The steps, by the numbers of their files.
enum class Step {
  loop_order = 1,
  register_tiles,
  async_copies,
  powers_of_2,
  masks_at_edges,
  vector_operands,
  longest_first,
  tuned
};

/// Per head, of all warps. Lanes that share rows reduce them by halves, a shuffle per row: the
/// maximum in every tile, the sum once per tile of Q. One __syncwarp() before P is read; the last
/// step has two more between chunks of 64 keys of P.
inline std::int64_t warp_operations(const FullProblem& p, const TileChoice& choice, Step step) {
  if (step == Step::loop_order) return 0;
  const ThreadPart& S = choice.thread.front();
  const int halvings = std::countr_zero(static_cast<unsigned>(S.lanes));
  const std::int64_t shuffles = std::int64_t{S.rows} * halvings;
  const std::int64_t chunks = step == Step::tuned ? (choice.tiles.Bc + 63) / 64 : 1;
  const Visits v = visits(p, choice.tiles);
  return choice.threads / 32 * (v.tiles * (shuffles + 2 * chunks - 1) + v.query_tiles * shuffles);
}

/// (6.6)  Two barriers per pair of tiles; step 1 has two more per tile of Q. Of a bias, which only
/// kernels in more/ know, every pair in a tile is read, visible or not; of ALiBi a slope per thread
/// and tile.
inline Prediction predicted_forward(const FullProblem& p, const TileChoice& choice, Step step) {
  const Visits v = visits(p, choice.tiles);
  const std::int64_t heads = std::int64_t{p.B} * p.H, Nq = p.Nq, d = p.d;
  const std::int64_t biases = p.bias == BiasKind::none ? 0 : p.bias == BiasKind::alibi ? choice.threads * v.tiles : v.pairs;
  TrafficByTensor moved{{"Q", {heads * Nq * d, 0}}, {"K", {heads * v.keys * d, 0}}, {"V", {heads * v.keys * d, 0}},
                        {"O", {0, heads * Nq * d}}, {"L", {0, heads * Nq}},         {"bias", {heads * biases, 0}}};
  if (step >= Step::vector_operands) moved["Q"].sectors = heads * Nq * d;  // read along columns, to be stored transposed
  // The lanes that write L have 4 neighbouring rows in steps 2 to 5, and later every fourth row.
  if (step != Step::loop_order) moved["L"].sectors = heads * Nq / (step < Step::vector_operands ? 4 : 2);
  const std::int64_t tiles_of_Q = step == Step::loop_order ? (p.Nq + choice.tiles.Br - 1) / choice.tiles.Br : 0;
  // An asynchronous copy that only fills with zeros reads nothing, yet its source address counts as
  // a sector.
  const bool copies_zeros = step >= Step::async_copies && (p.Nk % choice.tiles.Bc != 0 || p.d % 32 != 0);
  const bool ragged = !p.sequences.empty();
  if (ragged) {  // each thread looks up its block's tile, the ends of the sequence, and where it begins in Q, K, V, O and L
    const std::int64_t threads = heads * v.query_tiles * choice.threads;
    moved["order"] = {2 * threads, 0}, moved["offsets"] = {(4 + 5) * threads, 0};
  }
  const auto sectors = copies_zeros || ragged ? std::nullopt : sectors_of(moved, p);
  return {moved, sectors, 2 * heads * (v.tiles + tiles_of_Q), heads * warp_operations(p, choice, step)};
}

/// (K.5)  decode. Q is read once per split, the parts' L for every four columns of O.
/// Barriers: two per tile of keys, and one before the warps' parts are merged. Warp operations:
/// four halvings of each row's maximum in every tile, of its sum once per block.
inline Prediction predicted_decode(const FullProblem& p, const TileChoice& choice) {
  const int warps = choice.threads / 32, Bc = 16 * warps, Br = choice.tiles.Br;
  const SplitVisits v = split_visits(p, choice.tiles, Bc);
  const std::int64_t kv_heads = std::int64_t{p.B} * p.Hkv, rows = kv_heads * v.rows, parts = rows * v.splits, d = p.d;
  const std::int64_t keys = kv_heads * v.keys;
  TrafficByTensor moved{{"Q", {parts * d, 0, parts * d * Br / 32}},  // read along columns, to be stored transposed
                        {"K", {keys * d, 0}},
                        {"V", {keys * d, 0}},
                        {"part_O", {parts * d, parts * d}},
                        {"part_L", {parts * (d / 4), parts, 2 * parts}},  // each access is one number, wherever it lies
                        {"O", {0, rows * d}},
                        {"L", {0, rows, rows}},
                        {"bias", {p.bias == BiasKind::none ? 0 : kv_heads * v.pairs, 0}}};
  std::optional<std::int64_t> sectors;
  if (d == 128 && p.Nk % Bc == 0 && p.bias == BiasKind::none) {  // else copies of zeros, as above; a row has a warp
    sectors = 0;
    for (const auto& [name, tensor] : moved) *sectors += tensor.sectors.value_or((tensor.read + tensor.written) / 8);
  }
  return {moved, sectors, kv_heads * (2 * v.steps + v.blocks), kv_heads * (v.steps + v.blocks) * warps * Br / 2 * 4};
}

/// lorentz: as tuned, and the time components, two floats a row. time_kernel reads Q and K, with
/// five shuffles a row; a tile of Q that sees no key needs none.
inline Prediction predicted_lorentz(const FullProblem& p, const TileChoice& choice) {
  Prediction prediction = predicted_forward(p, choice, Step::tuned);
  const Visits v = visits(p, choice.tiles);
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_heads = std::int64_t{p.B} * p.Hkv, Nq = p.Nq, Nk = p.Nk;
  prediction.tensors["Q"].read += heads * Nq * p.d;
  prediction.tensors["K"].read += kv_heads * Nk * p.d;
  prediction.tensors["q0"] = {2 * heads * v.seeing, 2 * heads * Nq};
  prediction.tensors["k0"] = {2 * heads * v.keys, 2 * kv_heads * Nk};
  prediction.sectors = {};
  prediction.warp_operations = *prediction.warp_operations + 5 * (heads * Nq + kv_heads * Nk);
  return prediction;
}

/// centroid: as lorentz. V's time components come with K's, and the norm takes the sums of three
/// values over the lanes of a row.
inline Prediction predicted_centroid(const FullProblem& p, const TileChoice& choice) {
  Prediction prediction = predicted_lorentz(p, choice);
  const ThreadPart& S = choice.thread.front();
  const std::int64_t shuffles = std::int64_t{S.rows} * std::countr_zero(static_cast<unsigned>(S.lanes));
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_rows = std::int64_t{p.B} * p.Hkv * p.Nk;
  prediction.tensors["V"].read += kv_rows * p.d;
  prediction.tensors["v0"] = prediction.tensors["k0"];
  *prediction.warp_operations += 5 * kv_rows + heads * visits(p, choice.tiles).query_tiles * choice.threads / 32 * 3 * shuffles;
  return prediction;
}

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass, const TileChoice& choice, const DeviceLimits&) {
  if (v.name == std::string_view("decode")) return predicted_decode(p, choice);
  if (v.name == std::string_view("lorentz")) return predicted_lorentz(p, choice);
  if (v.name == std::string_view("centroid")) return predicted_centroid(p, choice);
  if (v.name == std::string_view("options")) return predicted_forward(p, choice, Step::tuned);
  const std::string_view file = v.file;
  const auto step = static_cast<Step>(std::atoi(file.data() + file.rfind('/') + 1));
  return step >= Step::loop_order && step <= Step::tuned ? predicted_forward(p, choice, step) : Prediction{};
}

}  // namespace flash::fa2_forward
