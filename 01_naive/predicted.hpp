// What chapters 01 to 03 predict of kernels that keep S and P in HBM.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/registry.hpp"

#include <string_view>

namespace flash::naive {

/// Of 32 rows or columns.
inline std::int64_t tiles(std::int64_t n) { return (n + 31) / 32; }

/// Of one product over all heads: two for each pair of tiles.
inline std::int64_t barriers_of_product(const FullProblem& p) {
  return 2 * std::int64_t{p.B} * p.H * tiles(p.Nq) * tiles(p.Nk) * tiles(p.d);
}

/// (1.6)  A product in tiles reads each operand once for every tile of the other's rows or columns. `reads_of_S`: of the softmax,
/// (2.9)  which gives a row to a thread, so that each element takes a sector, or to a warp.
inline Prediction predicted_forward(const FullProblem& p, std::int64_t reads_of_S, bool warp_per_row = false) {
  const std::int64_t rows = std::int64_t{p.B} * p.H * p.Nq, Nk = p.Nk, d = p.d, scores = rows * Nk;
  const std::int64_t key_rows = std::int64_t{p.B} * p.H * tiles(p.Nq) * Nk * d;
  TrafficByTensor moved{{"Q", {tiles(Nk) * rows * d, 0}},
                        {"K", {key_rows, 0}},
                        {"bias", {p.bias == BiasKind::none ? 0 : std::int64_t{p.B} * p.H * visible_pairs(p), 0}},
                        {"S", {reads_of_S * scores, scores}},
                        {"P", {tiles(d) * scores, scores}},
                        {"V", {key_rows, 0}},
                        {"O", {0, rows * d}},
                        {"L", {0, rows}}};
  if (warp_per_row) {
    moved["L"].sectors = rows;  // lane 0 alone
  } else {
    moved["S"].sectors = reads_of_S * scores + scores / 8;
    moved["P"].sectors = tiles(d) * scores / 8 + scores;
  }
  // A warp finds a maximum and a sum, each in five shuffles.
  return {moved, sectors_of(moved, p), 2 * barriers_of_product(p), warp_per_row ? 10 * rows : 0};
}

inline Prediction predicted_backward(const FullProblem& p) {
  const std::int64_t heads = std::int64_t{p.B} * p.H, kv_heads = std::int64_t{p.B} * p.Hkv, Nq = p.Nq, Nk = p.Nk, d = p.d,
                     scores = heads * Nq * Nk;
  const std::int64_t query_rows = heads * tiles(Nk) * Nq * d;  // a [Nq, d] operand, read once per tile of keys
  const std::int64_t key_rows = heads * tiles(Nq) * Nk * d;    // a [Nk, d] operand, read once per tile of queries
  const std::int64_t square = tiles(d) * scores;               // an [Nq, Nk] operand, read once per tile of d
  const TrafficByTensor moved{
      {"P", {square + 2 * scores, 0, square / 8 + 2 * scores}},  // a thread per row makes dS of P and dP
      {"dO", {2 * query_rows, 0}},
      {"V", {key_rows, 0}},
      {"dP", {2 * scores, scores, 2 * scores + scores / 8}},
      {"dS", {2 * square, scores, 2 * square / 8 + scores}},
      {"K", {key_rows, 0}},
      {"Q", {query_rows, 0}},
      {"dQ", {0, heads * Nq * d}},
      {"dK", {0, kv_heads * Nk * d}},
      {"dV", {0, kv_heads * Nk * d}}};
  return {moved, sectors_of(moved, p), 4 * barriers_of_product(p), 0};
}

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass pass, const TileChoice& choice,
                            const DeviceLimits& limits) {
  if (!p.sequences.empty()) {  // one after another
    Prediction sum{.tensors = {}, .sectors = {}, .barriers = 0, .warp_operations = 0};
    FullProblem alone = p;
    alone.sequences = {};
    for (int s = 0; s < p.sequences.count(); ++s) {
      static_cast<OptionsProblem&>(alone) = p.sequence(s);
      const Prediction one = predicted(v, alone, pass, choice, limits);
      for (const auto& [name, moved] : one.tensors) {
        sum.tensors[name].read += moved.read, sum.tensors[name].written += moved.written;
      }
      *sum.barriers += one.barriers.value_or(0);
    }
    return sum;
  }
  if (v.name != std::string_view("naive") && v.name != std::string_view("options")) return {};
  Prediction prediction = pass == Pass::forward ? predicted_forward(p, 2) : predicted_backward(p);
  if (p.dropout.probability != 0.0f) {  // drop_kernel: P, and dP; the backward pass runs the softmax again
    const std::int64_t rows = std::int64_t{p.B} * p.H * p.Nq, scores = rows * p.Nk;
    prediction.tensors["P"].read += scores;
    prediction.tensors["P"].written += scores;
    if (pass == Pass::backward) {
      prediction.tensors["P"].written += scores;
      prediction.tensors["S"].read += 2 * scores;
      prediction.tensors["L"].written += rows;
      prediction.tensors["dP"].read += scores;
      prediction.tensors["dP"].written += scores;
    }
    prediction.sectors = {};
  }
  if (pass == Pass::backward && p.bias_gradient) {  // bias_gradient_kernel
    prediction.tensors["dS"].read += std::int64_t{p.B} * p.H * p.Nq * p.Nk;
    prediction.tensors["dBias"].written += elements_of(bias_shape(p));
    prediction.sectors = {};
  }
  if (pass == Pass::backward && p.score == Score::lorentz) {  // lorentz.cuh, in place of the products dQ and dK
    const std::int64_t rows = std::int64_t{p.B} * p.H * p.Nq, key_rows = std::int64_t{p.B} * p.Hkv * p.Nk, Nk = p.Nk, d = p.d;
    const std::int64_t square = tiles(d) * rows * Nk, each = rows * Nk * d;  // each: pairs, once for each component
    prediction.tensors["dS"].read += rows * Nk - 2 * square + 2 * each;
    prediction.tensors["dS"].written += rows * Nk;
    prediction.tensors["dP"].read += 2 * each;
    prediction.tensors["dP"].written += rows * Nk;
    prediction.tensors["Q"].read += each + rows * d * (1 + d);  // slope_kernel reads what the product dK would
    prediction.tensors["K"].read += each + key_rows * d * (1 + d);
    prediction.barriers = *prediction.barriers - barriers_of_product(p);  // one pass over the pairs for two products
    prediction.sectors = {};
  }
  if (p.values == Values::centroid) {  // centroid.cuh
    const std::int64_t rows = std::int64_t{p.B} * p.H * p.Nq, key_rows = std::int64_t{p.B} * p.Hkv * p.Nk, Nk = p.Nk, d = p.d;
    const std::int64_t scores = rows * Nk, each = scores * d;
    auto& of = prediction.tensors;
    const auto more = [&](const char* name, std::int64_t read, std::int64_t written) {
      of[name].read += read, of[name].written += written;
    };
    if (pass == Pass::forward) {
      more("V", each, 0), more("P", 2 * scores, scores), more("O", 2 * rows * d, rows * d), more("L", rows, rows);
    } else {
      of["d_sum"] = {of["dO"].read, rows * d};  // in place of dO
      of["dO"].read = 2 * rows * d;
      more("O", 2 * rows * d, 0), more("d_time", scores + each, rows);
      more("P", each, 0), more("V", key_rows * d * (1 + d), 0), more("dV", key_rows * d, key_rows * d);
    }
    prediction.sectors = {};
  }
  if (pass == Pass::backward && p.softcap != 0.0f) {  // slope_kernel: S, the bias and dS of each pair that is seen
    const std::int64_t pairs = std::int64_t{p.B} * p.H * visible_pairs(p);
    prediction.tensors["S"].read += pairs;
    prediction.tensors["bias"].read += p.bias == BiasKind::none ? 0 : pairs;
    prediction.tensors["dS"].read += pairs;
    prediction.tensors["dS"].written += pairs;
    prediction.sectors = {};
  }
  return prediction;
}

}  // namespace flash::naive
