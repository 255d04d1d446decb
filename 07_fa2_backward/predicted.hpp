// What chapter 07 predicts.
#pragma once

#include "06_fa2_forward/predicted.hpp"

namespace flash::fa2_backward {

/// (7.7)  With so many barriers per pair of tiles in every kernel that visits it, and five shuffles
/// per row of D.
inline Prediction predicted_backward(const FullProblem& p, const TileChoice& choice, bool two_kernels = false,
                                     int barriers_of_pair = 4) {
  const Tiles& tiles = choice.tiles;
  const Visits v = visits(p, tiles);
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_heads = std::int64_t{p.B} * p.Hkv, Nq = p.Nq, Nk = p.Nk, d = p.d;
  // Rows of Q, dO, L, D that a head's blocks read: once for each tile of K, and for dBias again
  // (9.17).
  const std::int64_t walked = v.queries + (two_kernels ? Nq : p.bias_gradient ? v.queries : 0);
  const bool walks_twice = two_kernels || p.bias_gradient;  // over all pairs of tiles
  const std::int64_t kv_read = kv_heads * v.seen * d + (walks_twice ? heads * v.keys * d : 0);
  // Each query head of a group adds its part to the sum of those before it. Keys that no query sees
  // get their zeros once.
  const MemoryTraffic gradient{(heads - kv_heads) * v.seen * d, (heads * v.seen + kv_heads * (Nk - v.seen)) * d};
  // Zeroed; then each tile of K is added.
  const MemoryTraffic dQ =
      two_kernels ? MemoryTraffic{0, heads * Nq * d} : MemoryTraffic{heads * v.queries * d, heads * (Nq + v.queries) * d};
  // The bias of every pair of a tile, ALiBi's slope once for each of the 128 threads that compute
  // scores.
  const std::int64_t biases = p.bias == BiasKind::none ? 0 : p.bias == BiasKind::alibi ? 128 * v.tiles : v.pairs;
  TrafficByTensor moved{{"O", {heads * Nq * d, 0}},
                        {"dO", {heads * (Nq + walked) * d, 0}},
                        {"Q", {heads * walked * d, 0}},
                        {"L", {heads * walked, 0}},
                        {"D", {heads * walked, heads * Nq, heads * (walked / 8 + Nq)}},  // written by one lane of a warp
                        {"K", {kv_read, 0}},
                        {"V", {kv_read, 0}},
                        {"dK", gradient},
                        {"dV", gradient},
                        {"dQ", dQ},
                        {"bias", {heads * biases * (walks_twice ? 2 : 1), 0}},
                        {"dBias", {0, p.bias_gradient ? elements_of(bias_shape(p)) : 0}}};
  const bool copies_zeros = p.Nq % tiles.Br != 0 || p.Nk % tiles.Bc != 0 || p.d % 32 != 0;  // as in stage 06
  const bool ragged = !p.sequences.empty();
  if (ragged) {  // per block as in stage 06, for K and V; for Q, dO and dQ of each tile, and L and D by a thread per row; for dK or dV once
    const std::int64_t blocks = kv_heads * v.key_tiles, seeing = kv_heads * v.seen_tiles;
    const std::int64_t tensors = 2 * seeing + 3 * heads * v.tiles + heads * v.seen_tiles + (blocks - seeing);
    moved["order"] = {2 * blocks * choice.threads, 0};
    moved["offsets"] = {(4 * blocks + tensors) * choice.threads + 2 * heads * v.tiles * tiles.Br, 0};
  }
  const auto sectors = copies_zeros || ragged ? std::nullopt : sectors_of(moved, p);
  const std::int64_t barriers =
      barriers_of_pair * heads * v.tiles * (two_kernels ? 2 : 1) + (p.bias_gradient ? 3 * heads * v.tiles : 0);
  return {moved, sectors, barriers, 5 * heads * Nq};
}

/// lorentz: as one_kernel, and the time components, two floats a row, come with Q and K.
inline Prediction predicted_lorentz(const FullProblem& p, const TileChoice& choice) {
  Prediction prediction = predicted_backward(p, choice);
  prediction.tensors["q0"] = {2 * std::int64_t{p.B} * p.H * visits(p, choice.tiles).queries, 0};
  prediction.tensors["k0"] = {2 * std::int64_t{p.B} * p.Hkv * p.Nk, 0};
  prediction.sectors = {};
  return prediction;
}

/// centroid: as lorentz. V's time components come with V; centroid_kernel reads O, dO and D, and
/// the next kernel reads its result in place of dO and D.
inline Prediction predicted_centroid(const FullProblem& p, const TileChoice& choice) {
  Prediction prediction = predicted_lorentz(p, choice);
  const std::int64_t heads = std::int64_t{p.B} * p.H, elements = heads * p.Nq * p.d;
  auto& of = prediction.tensors;
  of["d_sum"] = {of["dO"].read - elements, elements};
  of["dO"].read = 2 * elements;
  of["O"].read += elements;
  of["D"] = {of["D"].read + 32 * heads * p.Nq, of["D"].written + heads * p.Nq};
  of["v0"] = of["k0"];
  *prediction.warp_operations += (5 + 1) * heads * p.Nq;
  return prediction;
}

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass pass, const TileChoice& choice, const DeviceLimits&) {
  const std::string_view name = v.name;
  const bool forward = pass == Pass::forward;
  if (name == "lorentz") return forward ? fa2_forward::predicted_lorentz(p, choice) : predicted_lorentz(p, choice);
  if (name == "centroid") return forward ? fa2_forward::predicted_centroid(p, choice) : predicted_centroid(p, choice);
  const bool halves = name == "two_halves", two_kernels = name == "two_kernels" || halves;
  if (!two_kernels && name != "one_kernel" && name != "options" && name != "bias_gradient") return {};
  if (forward) return fa2_forward::predicted_forward(p, choice, fa2_forward::Step::tuned);
  return predicted_backward(p, choice, two_kernels, two_kernels && !halves ? 3 : 4);
}

}  // namespace flash::fa2_backward
