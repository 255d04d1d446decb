#include "common/reference/naive.hpp"

#include "common/attention/tensor_table.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/reference/measure.hpp"
#include "common/reference/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

namespace flash {
namespace naive {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// x_r . M_j for each row j of M, given transposed: [d, keys].
std::vector<float> dots(const float* x, const std::vector<float>& M_T, std::size_t d) {
  const std::size_t keys = M_T.size() / d;
  std::vector<float> sums(keys, 0.0f);
  for (std::size_t c = 0; c < d; ++c) {
    for (std::size_t j = 0; j < keys; ++j) sums[j] += x[c] * M_T[c * keys + j];
  }
  return sums;
}

/// The time component of a row of d numbers.
float time_of(const float* row, std::size_t d) {
  float square = 1.0f;
  for (std::size_t c = 0; c < d; ++c) square += row[c] * row[c];
  return std::sqrt(square);
}

/// x = cosh of the distance - 1, and q0 - k0, of q and each key, from differences.
struct Pair {
  float x, theta;
};
std::vector<Pair> pairs(const float* q, const Keys& keys, std::size_t d) {
  std::vector<Pair> all;
  const float q0 = time_of(q, d);
  for (std::size_t r = 0; r < keys.rows.size(); ++r) {
    const float* const k = &keys.K[r * d];
    float apart = 0.0f, longer = 0.0f;
    for (std::size_t c = 0; c < d; ++c) {
      apart += (q[c] - k[c]) * (q[c] - k[c]);
      longer += (q[c] - k[c]) * (q[c] + k[c]);
    }
    const float theta = longer / (q0 + time_of(k, d));
    all.push_back({std::max(0.0f, 0.5f * (apart - theta * theta)), theta});
  }
  return all;
}

/// S_ij = scale * q_i . k_j, capped, + bias_ij, or -inf where the mask hides the key. `scale_first`: (scale * q_i) . k_j. With all components
/// alike one of the two may be exact and the other far off, by errors that do not cancel: a kernel may do either, in each pass.
/// `slopes`: also that of the softcap for each, unless null.
std::vector<float> scores(const Query& query, bool scale_first, std::vector<float>* slopes = nullptr) {
  const auto& [p, inputs, keys, b, h, i] = query;
  const float* const q = &inputs.Q(b, h, i, 0);
  std::vector<float> factor(q, q + p.d);
  for (float& value : factor) value *= scale_first ? p.scale : 1.0f;
  std::vector<float> S = dots(factor.data(), keys.K_T, static_cast<std::size_t>(p.d));
  if (p.score == Score::lorentz) {
    const std::vector<Pair> all = pairs(q, keys, static_cast<std::size_t>(p.d));
    for (std::size_t r = 0; r < S.size(); ++r)
      S[r] = -2 * std::asinh(std::sqrt(0.5f * all[r].x)) * (scale_first ? p.scale : 1.0f);
  }
  const auto [first, end, own] = p.keys_of(i);
  for (std::size_t r = 0; r < S.size(); ++r) {
    const int j = keys.rows[r];
    S[r] *= scale_first ? 1.0f : p.scale;
    if (p.softcap != 0.0f) {
      S[r] = p.softcap * std::tanh(S[r] / p.softcap);
      if (slopes != nullptr) slopes->push_back(1 - S[r] / p.softcap * (S[r] / p.softcap));
    }
    if (p.bias == BiasKind::alibi) {
      S[r] -= inputs.bias(b, h, 0, 0) * static_cast<float>(std::abs(own - j));
    } else if (p.bias != BiasKind::none) {
      S[r] += inputs.bias(b, h, i, j);
    }
    if (j < first || j >= end) S[r] = -infinity;
  }
  return S;
}

/// Z_ij of the keys; of no dropout: nothing.
std::vector<float> drop_factors(const Query& query) {
  const auto& [p, inputs, keys, b, h, i] = query;
  std::vector<float> Z;
  if (p.dropout.probability == 0.0f) return Z;
  const DropMask mask(p.dropout);
  for (const int j : keys.rows) Z.push_back(p.drop_factor(mask, b, h, i, j));
  return Z;
}

/// sum_j w_j M_j: [d]. M is [keys, d].
void weighted_sum(const std::vector<float>& weights, const std::vector<float>& M, std::size_t d, float* sum) {
  std::fill_n(sum, d, 0.0f);
  for (std::size_t j = 0; j < weights.size(); ++j) {
    for (std::size_t c = 0; c < d; ++c) sum[c] += weights[j] * M[j * d + c];
  }
}

}  // namespace

Keys::Keys(const FullProblem& p, const Inputs& inputs, int b, int kv_head, const std::vector<int>& numbers) : rows(numbers) {
  const std::size_t d = static_cast<std::size_t>(p.d);
  K.resize(rows.size() * d);
  V = K_T = V_T = K;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    for (std::size_t c = 0; c < d; ++c) {
      K[j * d + c] = K_T[c * rows.size() + j] = (&inputs.K(b, kv_head, rows[j], 0))[c];
      V[j * d + c] = V_T[c * rows.size() + j] = (&inputs.V(b, kv_head, rows[j], 0))[c];
    }
  }
}

std::vector<int> all_rows(int count) {
  std::vector<int> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

void forward(const Query& query, float* O, float& L) {
  const auto& [p, inputs, keys, b, h, i] = query;
  const std::size_t d = static_cast<std::size_t>(p.d);
  std::vector<float> P = scores(query, true);
  const float m = *std::max_element(P.begin(), P.end());
  if (m == -infinity) {  // no visible key
    std::fill_n(O, d, 0.0f);
    L = -infinity;
    return;
  }
  float l = 0.0f;
  for (float& weight : P) {
    weight = std::exp(weight - m);
    l += weight;
  }
  const std::vector<float> Z = drop_factors(query);
  for (std::size_t j = 0; j < P.size(); ++j) P[j] = round_to(p.dtype, P[j] / l * (Z.empty() ? 1.0f : Z[j]));
  L = m + std::log(l);
  weighted_sum(P, keys.V, d, O);
  if (p.values == Values::centroid) {
    float time = 0.0f, square = 0.0f;
    for (std::size_t j = 0; j < P.size(); ++j) time += P[j] * time_of(&keys.V[j * d], d);
    for (std::size_t c = 0; c < d; ++c) square += O[c] * O[c];
    const float length = std::sqrt(square), N = std::sqrt(std::max(1.0f, (time - length) * (time + length)));
    for (std::size_t c = 0; c < d; ++c) O[c] /= N;
    L += std::log(N);
  }
  for (std::size_t c = 0; c < d; ++c) O[c] = round_to(p.dtype, O[c]);
}

ScoreGradients score_gradients(const Query& query, const float* O, float L) {
  const auto& [p, inputs, keys, b, h, i] = query;
  const std::size_t d = static_cast<std::size_t>(p.d);
  const float* dO = &inputs.dO(b, h, i, 0);
  float D = 0.0f;
  for (std::size_t c = 0; c < d; ++c) D += dO[c] * O[c];

  std::vector<float> slopes;  // empty without a softcap
  ScoreGradients result{.P = scores(query, false, &slopes), .dS = {}};
  result.dO.assign(dO, dO + d);
  if (p.values == Values::centroid) {
    for (std::size_t c = 0; c < d; ++c) result.dO[c] += D * O[c];
    result.dO_time = -D * time_of(O, d);
    D = 0.0f;
  }
  result.dS = dots(result.dO.data(), keys.V_T, d);
  for (std::size_t j = 0; p.values == Values::centroid && j < keys.rows.size(); ++j) {
    result.dS[j] += result.dO_time * time_of(&keys.V[j * d], d);
  }
  const std::vector<float> Z = drop_factors(query);
  for (std::size_t j = 0; j < keys.rows.size(); ++j) {
    const float factor = Z.empty() ? 1.0f : Z[j];
    const float P = L == -infinity ? 0.0f : std::exp(result.P[j] - L);
    const float dS = P * (factor * result.dS[j] - D);  // dS = P o (Z o dP - D) o slope
    if (p.bias_gradient) result.dBias.push_back(dS);
    result.dS[j] = round_to(p.dtype, slopes.empty() ? dS : dS * slopes[j]);
    result.P[j] = round_to(p.dtype, factor * P);
  }
  if (p.score != Score::lorentz) return result;
  const std::vector<Pair> all = pairs(&inputs.Q(b, h, i, 0), keys, d);
  for (std::size_t j = 0; j < all.size(); ++j) {
    result.dS[j] = all[j].x == 0.0f ? 0.0f : -result.dS[j] / (std::sqrt(all[j].x) * std::sqrt(all[j].x + 2));
    result.theta_dS.push_back(result.dS[j] * all[j].theta);
  }
  return result;
}

void query_gradient(const Query& query, const ScoreGradients& gradients, float* dQ) {
  const auto& [p, inputs, keys, b, h, i] = query;
  const std::size_t d = static_cast<std::size_t>(p.d);
  if (p.score == Score::lorentz) {
    const float* const q = &inputs.Q(b, h, i, 0);
    const float q0 = time_of(q, d);
    for (std::size_t c = 0; c < d; ++c) {
      float apart = 0.0f, in_time = 0.0f;
      for (std::size_t j = 0; j < gradients.dS.size(); ++j) {
        apart += gradients.dS[j] * (q[c] - keys.K[j * d + c]);
        in_time += gradients.theta_dS[j];
      }
      dQ[c] = apart - in_time * q[c] / q0;
    }
  } else {
    weighted_sum(gradients.dS, keys.K, d, dQ);
  }
  for (std::size_t c = 0; c < d; ++c) dQ[c] = round_to(p.dtype, p.scale * dQ[c]);
}

void add_query(const Query& query, const ScoreGradients& gradients, KeyGradients& sum) {
  const auto& [p, inputs, keys, b, h, i] = query;
  const std::size_t d = static_cast<std::size_t>(p.d);
  const float* Q = &inputs.Q(b, h, i, 0);
  for (std::size_t j = 0; j < gradients.P.size(); ++j) {
    for (std::size_t c = 0; c < d; ++c) sum.dV[j * d + c] += gradients.P[j] * gradients.dO[c];
    if (p.values == Values::centroid) {
      const float* const v = &keys.V[j * d];
      const float in_time = gradients.P[j] * gradients.dO_time / time_of(v, d);
      for (std::size_t c = 0; c < d; ++c) sum.dV[j * d + c] += in_time * v[c];
    }
    if (p.score == Score::lorentz) {
      const float* const k = &keys.K[j * d];
      const float in_time = gradients.theta_dS[j] / time_of(k, d);
      for (std::size_t c = 0; c < d; ++c) sum.dK[j * d + c] += gradients.dS[j] * (k[c] - Q[c]) + in_time * k[c];
      continue;
    }
    for (std::size_t c = 0; c < d; ++c) sum.dK[j * d + c] += gradients.dS[j] * Q[c];
  }
}

void add_head(const KeyGradients& head, float* dK, float* dV) {
  for (std::size_t n = 0; n < head.dK.size(); ++n) {
    dK[n] += head.dK[n];
    dV[n] += head.dV[n];
  }
}

void finish_key_gradients(const FullProblem& p, std::size_t count, float* dK, float* dV) {
  for (std::size_t n = 0; n < count; ++n) {
    dK[n] = round_to(p.dtype, p.scale * dK[n]);
    dV[n] = round_to(p.dtype, dV[n]);
  }
}

}  // namespace naive

std::vector<float> scores_in_fp32(const FullProblem& p, const Inputs& inputs, int b, int h, int i) {
  const naive::Keys keys(p, inputs, b, p.kv_head(h), naive::all_rows(p.Nk));
  return naive::scores({p, inputs, keys, b, h, i}, false);
}

Results<float> naive_same_precision(const FullProblem& p, const Inputs& inputs, Pass pass) {
  Results<float> results = zero_results<float>(pass, p.d, {p.B, p.H, p.Nq}, {p.B, p.Hkv, p.Nk});
  // One task per key/value head, because the query heads of its group add to the same dK and dV.
  parallel_for(p.B, p.Hkv, [&](int b, int g) {
    const naive::Keys keys(p, inputs, b, g, naive::all_rows(p.Nk));
    for (int h = g * p.group_size(); h < (g + 1) * p.group_size(); ++h) {
      naive::KeyGradients head(keys);
      for (int i = 0; i < p.Nq; ++i) {
        const naive::Query query{p, inputs, keys, b, h, i};
        float* O = &results.O(b, h, i, 0);
        float& L = results.L(b, h, i, 0);
        naive::forward(query, O, L);
        if (pass == Pass::forward) continue;
        const naive::ScoreGradients gradients = naive::score_gradients(query, O, L);
        naive::query_gradient(query, gradients, &results.dQ(b, h, i, 0));
        naive::add_query(query, gradients, head);
      }
      if (pass == Pass::backward) naive::add_head(head, &results.dK(b, g, 0, 0), &results.dV(b, g, 0, 0));
    }
    if (pass == Pass::backward) {
      naive::finish_key_gradients(p, keys.K.size(), &results.dK(b, g, 0, 0), &results.dV(b, g, 0, 0));
    }
  });
  if (const auto rows = bias_rows(p, pass); !rows.empty()) results.dBias = naive_bias_gradient(p, inputs, rows, bias_shape(p));
  return results;
}

}  // namespace flash
