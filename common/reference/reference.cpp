#include "common/reference/reference.hpp"

#include "common/reference/exact.hpp"
#include "common/reference/measure.hpp"
#include "common/reference/parallel.hpp"

namespace flash {
namespace {

using exact::Matrix;

/// The matrix [N, d] of one batch and head within a result.
Eigen::Map<Matrix> head_of(HostTensor<double>& tensor, int b, int h) {
  return {tensor.values.data() + tensor.index(b, h, 0, 0), tensor.shape[2], tensor.shape[3]};
}

/// Everything that one query head contributes. dK and dV are sums over the heads that share a key/value head, and the terms of
/// keys are the largest over them.
template <class T>
void add_query_head(const exact::Head<T>& head, Pass pass, Exact& whole) {
  Results<double>& results = whole.results;
  const Problem& problem = head.problem;
  const double scale = problem.scale;
  const int b = head.b, h = head.h;

  for (const std::vector<int>& queries : exact::query_blocks(problem)) {
    const int first = queries.front();
    const auto rows = static_cast<Eigen::Index>(queries.size());
    const auto [P, O, L, score_terms] = exact::forward(head, queries);
    head_of(results.O, b, h).middleRows(first, rows) = O;
    head_of(results.L, b, h).middleRows(first, rows) = L;
    head_of(whole.queries.score, b, h).middleRows(first, rows) = score_terms;
    if (pass == Pass::forward) continue;

    // From here on each line differentiates a line of the forward pass.
    const Matrix Q = head.Q.middleRows(first, rows);
    const Matrix dO = head.dO.middleRows(first, rows);
    auto dQ = head_of(results.dQ, b, h).middleRows(first, rows);
    auto dK = head_of(results.dK, b, problem.kv_head(h));
    auto dV = head_of(results.dV, b, problem.kv_head(h));
    dV.noalias() += P.transpose() * dO;                                                 // O = P V
    const auto [dS, query_terms, key_terms] = exact::score_gradient(P, dO, O, head.V);  // P = softmax(S), O = P V
    dQ.noalias() = scale * dS * head.K;                                                 // S = scale * Q K^T
    dK.noalias() += scale * dS.transpose() * Q;

    auto key_score = head_of(whole.keys.score, b, problem.kv_head(h)), key_dS = head_of(whole.keys.dS, b, problem.kv_head(h));
    head_of(whole.queries.dS, b, h).middleRows(first, rows) = query_terms;
    key_score = key_score.cwiseMax(exact::key_score_terms(P, score_terms).transpose());
    key_dS = key_dS.cwiseMax(key_terms.transpose());
  }
}

}  // namespace

template <class T>
Exact exact_results(const Problem& problem, const InputsOf<T>& inputs, Pass pass) {
  Exact whole;
  Results<double>& results = whole.results;
  results.O = HostTensor<double>({problem.B, problem.H, problem.Nq, problem.d});
  results.L = whole.queries.score = HostTensor<double>({problem.B, problem.H, problem.Nq, 1});
  if (pass == Pass::backward) {
    results.dQ = HostTensor<double>({problem.B, problem.H, problem.Nq, problem.d});
    results.dK = HostTensor<double>({problem.B, problem.Hkv, problem.Nk, problem.d});
    results.dV = HostTensor<double>({problem.B, problem.Hkv, problem.Nk, problem.d});
    whole.queries.dS = whole.queries.score;
    whole.keys.score = whole.keys.dS = HostTensor<double>({problem.B, problem.Hkv, problem.Nk, 1});
  }
  // One task per key/value head: the query heads that add to the same dK and dV follow each other in one thread.
  parallel_for(std::int64_t{problem.B} * problem.Hkv, [&](std::int64_t task) {
    const int b = static_cast<int>(task / problem.Hkv), g = static_cast<int>(task % problem.Hkv);
    for (int h = g * problem.group_size(); h < (g + 1) * problem.group_size(); ++h) {
      add_query_head(exact::Head<T>(problem, inputs, b, h), pass, whole);
    }
  });
  return whole;
}

template <class T>
Results<double> reference(const Problem& problem, const InputsOf<T>& inputs, Pass pass) {
  return exact_results(problem, inputs, pass).results;
}

template Results<double> reference(const Problem&, const InputsOf<float>&, Pass);
template Results<double> reference(const Problem&, const InputsOf<double>&, Pass);
template Exact exact_results(const Problem&, const InputsOf<float>&, Pass);

}  // namespace flash
