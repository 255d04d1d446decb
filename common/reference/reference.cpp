#include "common/reference/reference.hpp"

#include "common/base/parallel.hpp"
#include "common/reference/exact.hpp"
#include "common/reference/measure.hpp"

namespace flash {
namespace {

using exact::Matrix;
using exact::product;

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
    const exact::Forward forward = exact::forward(head, queries);
    const auto& [P, O, L, score_terms, P_squares, sum_errors] = forward;
    head_of(results.O, b, h).middleRows(first, rows) = O;
    head_of(results.L, b, h).middleRows(first, rows) = L;
    head_of(whole.queries.score, b, h).middleRows(first, rows) = score_terms;
    head_of(whole.queries.P2, b, h).middleRows(first, rows) = P_squares;
    head_of(whole.queries.sum, b, h).middleRows(first, rows) = sum_errors;
    if (pass == Pass::forward) continue;

    // From here on each line differentiates a line of the forward pass.
    const Matrix Q = head.Q.middleRows(first, rows);
    const Matrix dO = head.dO.middleRows(first, rows);
    auto dQ = head_of(results.dQ, b, h).middleRows(first, rows);
    auto dK = head_of(results.dK, b, problem.kv_head(h));
    auto dV = head_of(results.dV, b, problem.kv_head(h));
    dV += product(P.transpose(), dO);                                               // O = P V
    const exact::ScoreGradient gradient = exact::score_gradient(P, dO, O, head.V);  // P = softmax(S), O = P V
    const Matrix& dS = gradient.dS;
    dQ = scale * product(dS, head.K);  // S = scale * Q K^T
    dK += scale * product(dS.transpose(), Q);

    const auto of_keys = [&](HostTensor<double>& tensor) { return head_of(tensor, b, problem.kv_head(h)); };
    auto key_score = of_keys(whole.keys.score);
    key_score = key_score.cwiseMax(exact::key_score_terms(P, score_terms).transpose());
    auto key_sum = of_keys(whole.keys.sum);
    key_sum = key_sum.cwiseMax(sum_errors.maxCoeff());
    const exact::Vector D_errors = exact::D_errors(problem, dO, forward);
    const exact::RowTerms query_terms = exact::query_terms(problem, P, gradient, D_errors, head.K);
    head_of(whole.queries.dP, b, h).middleRows(first, rows) = query_terms.dP;
    head_of(whole.queries.dS2, b, h).middleRows(first, rows) = query_terms.dS2;
    head_of(whole.queries.D, b, h).middleRows(first, rows) = query_terms.D;
    const exact::RowTerms key_terms = exact::key_terms(problem, P, gradient, D_errors, Q);
    of_keys(whole.keys.dP) += key_terms.dP;
    of_keys(whole.keys.P2) += key_terms.P2;
    of_keys(whole.keys.dS2) += key_terms.dS2;
    of_keys(whole.keys.D) += key_terms.D;
  }
}

}  // namespace

template <class T>
Exact exact_results(const Problem& problem, const InputsOf<T>& inputs, Pass pass) {
  Exact whole;
  Results<double>& results = whole.results;
  results.O = HostTensor<double>({problem.B, problem.H, problem.Nq, problem.d});
  results.L = whole.queries.score = whole.queries.P2 = whole.queries.sum =
      HostTensor<double>({problem.B, problem.H, problem.Nq, 1});
  if (pass == Pass::backward) {
    results.dQ = HostTensor<double>({problem.B, problem.H, problem.Nq, problem.d});
    results.dK = HostTensor<double>({problem.B, problem.Hkv, problem.Nk, problem.d});
    results.dV = HostTensor<double>({problem.B, problem.Hkv, problem.Nk, problem.d});
    whole.queries.dP = whole.queries.dS2 = whole.queries.D = whole.queries.score;
    whole.keys.score = whole.keys.dP = whole.keys.P2 = whole.keys.dS2 = whole.keys.D = whole.keys.sum =
        HostTensor<double>({problem.B, problem.Hkv, problem.Nk, 1});
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
