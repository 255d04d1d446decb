// Big problems are checked on a sample of rows; the sampled values are those of the whole.
#include "common/reference/measure.hpp"
#include "common/reference/test_inputs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace flash {
namespace {

using test::problem_of;
using test::random_inputs;

/// The same row of the sampled and of the whole tensor. `tolerance` is relative to 1 + |value|.
template <class T>
void check_row(const HostTensor<T>& sampled, std::int64_t n, const HostTensor<T>& all, int b, int h, int row,
               double tolerance) {
  REQUIRE(n < sampled.shape[2]);
  REQUIRE(sampled.shape[3] == all.shape[3]);
  for (std::int64_t c = 0; c < all.shape[3]; ++c) {
    const double got = sampled(0, 0, n, c), expected = all(b, h, row, c);
    CHECK((got == expected || std::abs(got - expected) <= tolerance * (1 + std::abs(expected))));
  }
}

const Sample a_sample{.whole = false, .slices = {{1, 3, {0, 7, 22}, {0, 3, 18}}, {0, 0, {22}, {}}, {0, 1, {1, 2}, {18}}}};

}  // namespace

TEST_CASE("sample: sampled rows are the rows of the whole, exact and naive") {
  for (const BiasKind bias : {BiasKind::none, BiasKind::vector, BiasKind::matrix, BiasKind::alibi}) {
    for (const bool causal : {false, true}) {
      FullProblem p = problem_of(2, 4, 2, 23, 19, 8);
      p.bias = bias;
      p.causal = causal;
      const Inputs inputs = random_inputs<float>(p, Pass::backward);
      const Measured sampled = measure_sample(p, inputs, Pass::backward, a_sample);
      const Results<double> exact = exact_results(p, inputs, Pass::backward).results;
      const Results<float> naive = naive_same_precision(p, inputs, Pass::backward);
      std::int64_t query = 0, key = 0;
      for (const Sample::Slice& slice : a_sample.slices) {
        for (const int i : slice.queries) {
          for (const auto of : {&Results<double>::O, &Results<double>::L, &Results<double>::dQ})
            check_row(sampled.exact.results.*of, query, exact.*of, slice.b, slice.h, i, 1e-13);
          for (const auto of : {&Results<float>::O, &Results<float>::L, &Results<float>::dQ})
            check_row(sampled.naive.*of, query, naive.*of, slice.b, slice.h, i, 0);
          ++query;
        }
        for (const int j : slice.keys) {
          const int g = p.kv_head(slice.h);
          check_row(sampled.exact.results.dK, key, exact.dK, slice.b, g, j, 1e-13);
          check_row(sampled.exact.results.dV, key, exact.dV, slice.b, g, j, 1e-13);
          check_row(sampled.naive.dK, key, naive.dK, slice.b, g, j, 1e-5);  // it starts from another L
          check_row(sampled.naive.dV, key, naive.dV, slice.b, g, j, 1e-5);
          ++key;
        }
      }
      CHECK(sampled.exact.results.O.shape[2] == query);
      CHECK(sampled.exact.results.dK.shape[2] == key);
    }
  }
}

TEST_CASE("sample: sampled keys sum over every block of many queries") {
  const FullProblem p = problem_of(1, 1, 1, 70 * 256 + 9, 3, 2);  // more blocks than there are partial sums
  const Inputs inputs = random_inputs<float>(p, Pass::backward);
  const Sample one_key{.whole = false, .slices = {{0, 0, {}, {1}}}};
  const Measured sampled = measure_sample(p, inputs, Pass::backward, one_key);
  const Results<double> exact = exact_results(p, inputs, Pass::backward).results;
  check_row(sampled.exact.results.dK, 0, exact.dK, 0, 0, 1, 1e-12);
  check_row(sampled.exact.results.dV, 0, exact.dV, 0, 0, 1, 1e-12);
}

TEST_CASE("sample: a sampled check passes what is right and finds a wrong element in a sampled row") {
  for (const bool shared : {false, true}) {  // between all batches and heads, over which the bias's gradient is then summed
    FullProblem p = problem_of(2, 4, 2, 23, 19, 8);
    p.bias = BiasKind::matrix;
    p.bias_gradient = true;
    p.bias_per_batch = p.bias_per_head = !shared;
    const Inputs inputs = random_inputs<float>(p, Pass::backward);
    const Results<float> right = naive_same_precision(p, inputs, Pass::backward);
    const Checker checker(p, inputs, Pass::backward, a_sample);
    CHECK(checker.check(right).passed);
    CHECK(checker.check(right).sampled);
    CHECK(Checker(p, inputs, Pass::forward, a_sample).check(right).tensors.size() == 2);  // whatever keys the sample names
    const auto finds = [&](HostTensor<float> Results<float>::*tensor, const char* name, int b, int h, int row, float wrong) {
      Results<float> got = right;
      (got.*tensor)(b, h, row, 5) = wrong;
      for (const TensorCheck& check : checker.check(got).tensors) CHECK(check.passed == (check.tensor != name));
    };
    finds(&Results<float>::dV, "dv", 1, 1, 18, std::numeric_limits<float>::quiet_NaN());
    finds(&Results<float>::dQ, "dq", 0, 1, 2, right.dQ(0, 1, 2, 5) + 0.01f);
    finds(&Results<float>::dBias, "dbias", 0, 1, 2, right.dBias(0, 1, 2, 5) + 1e-3f);
  }
}

TEST_CASE("sample: small problems are checked whole, big ones on slices with the first and the last of everything") {
  CHECK(choose_sample(problem_of(1, 2, 2, 128, 128, 64), Pass::backward, 1).whole);
  CHECK(choose_sample(problem_of(8, 12, 12, 257, 257, 64), Pass::forward, 1).whole);

  for (const FullProblem& p :
       {problem_of(8, 12, 4, 1024, 1000, 64), problem_of(1, 1, 1, 16384, 16384, 128), problem_of(1, 2, 2, 65536, 65536, 128),
        problem_of(2, 1, 1, 9, 1 << 26, 8), problem_of(1024, 1024, 1, 1, 1, 128), problem_of(1, 3, 3, 1 << 20, 33, 64)}) {
    CAPTURE(describe(p));
    const Sample sample = choose_sample(p, Pass::backward, 7);
    REQUIRE_FALSE(sample.whole);
    std::set<std::pair<int, int>> places;
    std::set<int> queries, keys;
    for (const Sample::Slice& slice : sample.slices) {
      places.emplace(slice.b, slice.h);
      queries.insert(slice.queries.begin(), slice.queries.end());
      keys.insert(slice.keys.begin(), slice.keys.end());
      CHECK(std::is_sorted(slice.queries.begin(), slice.queries.end()));
      CHECK(slice.queries.size() >= std::min<std::size_t>(8, static_cast<std::size_t>(p.Nq)));
    }
    CHECK(places.size() == sample.slices.size());
    CHECK(*places.begin() == std::pair{0, 0});
    CHECK(*places.rbegin() == std::pair{p.B - 1, p.H - 1});
    CHECK((*queries.begin() == 0 && *queries.rbegin() == p.Nq - 1));
    CHECK((*keys.begin() == 0 && *keys.rbegin() == p.Nk - 1));
  }
  // Gradients of keys take all queries: where those are many, in the first slice alone.
  const Sample dear = choose_sample(problem_of(1, 2, 2, 65536, 65536, 128), Pass::backward, 7);
  CHECK((!dear.slices.at(0).keys.empty() && dear.slices.at(1).keys.empty()));
}

}  // namespace flash
