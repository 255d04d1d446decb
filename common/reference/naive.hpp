// Attention by plain loops in fp32, one query at a time, rounded where an implementation in fp16 or bf16 would round.
// Internal to common/reference.
//
// Every sum runs in the order of its index, in fp32; dK and dV are summed over the queries of a head first, then over the heads that share
// the key/value head, as a library's matrix products do it. Where a loop over keys is inside a loop over components, it is so that
// neighbouring sums advance together, which compilers turn into vector instructions; each sum alone keeps its order.
#pragma once

#include "common/attention/dropout.hpp"
#include "common/attention/tensor_table.hpp"

#include <vector>

namespace flash::naive {

/// Some keys and values of one key/value head, also transposed.
struct Keys {
  Keys(const FullProblem&, const Inputs&, int b, int kv_head, const std::vector<int>& rows);

  std::vector<int> rows;        ///< their numbers among the Nk keys
  std::vector<float> K, V;      ///< [keys, d]
  std::vector<float> K_T, V_T;  ///< [d, keys]
};

/// All Nk keys of a head.
std::vector<int> all_rows(int count);

/// Query i of (b, h), and all keys or some.
struct Query {
  const FullProblem& problem;
  const Inputs& inputs;
  const Keys& keys;
  int b, h, i;
};

/// O_i (d values) and L_i, from all keys.
void forward(const Query&, float* O, float& L);

/// P_ij, after dropout, and dS_ij for the given keys, as they enter the last products: rounded to the problem's dtype. The bias's share
/// is in fp32, as the bias is, and only there if its gradient is asked for.
struct ScoreGradients {
  std::vector<float> P, dS, dBias = {};
  std::vector<float> theta_dS = {};  ///< for Score::lorentz, where dS is divided by the slope: dS times q0 - k0
  std::vector<float> dO = {};        ///< of the weighted sum of V, which dV adds up
  float dO_time = 0.0f;              ///< for Values::centroid: of the sum's time component
};
ScoreGradients score_gradients(const Query&, const float* O, float L);

/// dQ_i (d values), from all keys.
void query_gradient(const Query&, const ScoreGradients&, float* dQ);

/// dK / scale and dV of some keys, of one query head: [keys, d].
struct KeyGradients {
  explicit KeyGradients(const Keys& keys) : dK(keys.K.size(), 0.0f), dV(keys.K.size(), 0.0f) {}
  std::vector<float> dK, dV;
};

/// Adds what the query contributes.
void add_query(const Query&, const ScoreGradients&, KeyGradients&);

/// Adds a head's sums to those of the heads before it.
void add_head(const KeyGradients&, float* dK, float* dV);

/// Scales dK and rounds both to the problem's dtype when all queries have been added.
void finish_key_gradients(const FullProblem&, std::size_t count, float* dK, float* dV);

}  // namespace flash::naive
