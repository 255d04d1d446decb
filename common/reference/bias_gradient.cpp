#include "common/reference/measure.hpp"

#include "common/attention/tensor_table.hpp"
#include "common/reference/naive.hpp"
#include "common/reference/parallel.hpp"

#include <algorithm>
#include <utility>

namespace flash {
namespace {

using exact::Matrix;
using exact::rows_of;
using exact::Vector;

/// The heads whose scores contain this matrix of the bias, in the order in which they are summed.
std::vector<std::pair<int, int>> sharing_heads(const FullProblem& p, int b, int h) {
  std::vector<std::pair<int, int>> heads;
  for (int other_b = 0; other_b < p.B; ++other_b) {
    for (int other_h = 0; other_h < p.H; ++other_h) {
      if ((!p.bias_per_batch || other_b == b) && (!p.bias_per_head || other_h == h)) heads.emplace_back(other_b, other_h);
    }
  }
  return heads;
}

/// Adds a head's part of some rows, which begin at row `first` of the results.
template <class T>
void add_block(const exact::Head<T>& head, const std::vector<int>& queries, std::int64_t first, Exact& exact) {
  const FullProblem& p = head.problem;
  const auto rows = static_cast<std::int64_t>(queries.size());
  const exact::Forward forward = exact::forward(head, queries);
  // Without the slope of a softcap: the bias is added after it.
  const exact::ScoreGradient gradient =
      exact::score_gradient({forward.P, Matrix(), forward.Z}, exact::output_gradient(p, forward), head.V);
  rows_of(exact.results.dBias, first, rows) += gradient.dS;

  const double u = exact::unit_32(p.dtype);
  const Vector errors = u * (1 + forward.score_terms.array().min(exact::hopeless_score)) + forward.sum_errors.array();
  const Vector largest = gradient.dS.cwiseAbs().rowwise().maxCoeff(), largest_P = forward.P.rowwise().maxCoeff();
  rows_of(exact.biases.own, first, rows) += Vector(errors.cwiseProduct(largest) + u * gradient.dP_terms.rowwise().maxCoeff() +
                                                   largest_P.cwiseProduct(exact::D_errors(p, forward)));
  auto score = rows_of(exact.biases.score, first, rows);
  score = score.cwiseMax(Matrix(forward.score_terms));
}

}  // namespace

std::vector<BiasRows> bias_rows(const FullProblem& p, Pass pass, const Sample& sample) {
  std::vector<BiasRows> all;
  if (!p.bias_gradient || pass == Pass::forward) return all;
  const auto shape = bias_shape(p);
  for (int b = 0; sample.whole && b < shape[0]; ++b) {
    for (int h = 0; h < shape[1]; ++h) all.push_back({b, h, naive::all_rows(p.Nq)});
  }
  for (const Sample::Slice& slice : sample.slices)
    all.push_back({p.bias_per_batch ? slice.b : 0, p.bias_per_head ? slice.h : 0, slice.queries});
  return all;
}

template <class T>
void exact_bias_gradient(const FullProblem& p, const InputsOf<T>& inputs, const std::vector<BiasRows>& all,
                         const Extents& shape, Exact& exact) {
  exact.results.dBias = HostTensor<double>(shape);
  exact.biases.score = exact.biases.own = HostTensor<double>({shape[0], shape[1], shape[2], 1});
  std::int64_t first = 0;
  for (const BiasRows& rows : all) {
    const auto blocks = exact::query_blocks(p, rows.queries);
    for (const auto& [b, h] : sharing_heads(p, rows.b, rows.h)) {
      const exact::Head<T> head(p, inputs, b, h);
      parallel_for(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t n) {
        const auto step = static_cast<std::int64_t>(blocks.front().size());  // all but the last are of one size
        add_block(head, blocks[static_cast<std::size_t>(n)], first + n * step, exact);
      });
    }
    first += static_cast<std::int64_t>(rows.queries.size());
  }
}

HostTensor<float> naive_bias_gradient(const FullProblem& p, const Inputs& inputs, const std::vector<BiasRows>& all,
                                      const Extents& shape) {
  HostTensor<float> result(shape);
  float* sums = result.values.data();
  for (const BiasRows& rows : all) {
    for (const auto& head : sharing_heads(p, rows.b, rows.h)) {
      const int b = head.first, h = head.second;  // clang 14: a lambda cannot capture a structured binding
      const naive::Keys keys(p, inputs, b, p.kv_head(h), naive::all_rows(p.Nk));
      parallel_for(static_cast<std::int64_t>(rows.queries.size()), [&](std::int64_t r) {
        const naive::Query query{p, inputs, keys, b, h, rows.queries[static_cast<std::size_t>(r)]};
        std::vector<float> O(static_cast<std::size_t>(p.d));
        float L = 0;
        naive::forward(query, O.data(), L);
        const auto gradients = naive::score_gradients(query, O.data(), L);
        for (int j = 0; j < p.Nk; ++j) sums[r * p.Nk + j] += gradients.dBias[static_cast<std::size_t>(j)];
      });
    }
    sums += static_cast<std::int64_t>(rows.queries.size()) * p.Nk;
  }
  return result;
}

template void exact_bias_gradient(const FullProblem&, const InputsOf<float>&, const std::vector<BiasRows>&, const Extents&,
                                  Exact&);
template void exact_bias_gradient(const FullProblem&, const InputsOf<double>&, const std::vector<BiasRows>&, const Extents&,
                                  Exact&);

}  // namespace flash
