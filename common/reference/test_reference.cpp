// The reference against three things that know nothing of it: the definition summed up in scalar loops, cases with a known
// answer, and finite differences.
#include "common/reference/measure.hpp"
#include "common/reference/test_inputs.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace flash {
namespace {

using test::infinity;
using test::problem_of;
using test::random_inputs;

/// Adds the problem with one option after another.
void add_options(FullProblem p, const Window& window, std::vector<FullProblem>& problems) {
  const auto add = [&](auto&& change) {
    change();
    problems.push_back(p);
  };
  add([] {});
  add([&] { p.window = window; });
  add([&] { p.softcap = 0.8f; });  // bends most scores
  add([&] { p.dropout = {0.3f, 5}; });
  add([&] { p.score = Score::lorentz; });
  add([&] { p.dropout = {}, p.softcap = 0.0f; });
  add([&] { p.values = Values::centroid; });
}

/// Every mixture of mask, bias and lengths, in turn with each grouping of heads; and ragged batches.
std::vector<FullProblem> problems_with_options() {
  constexpr std::array heads{std::pair{2, 2}, std::pair{4, 2}, std::pair{3, 1}};
  std::size_t mixtures = 0;
  std::vector<FullProblem> problems;
  for (const bool causal : {false, true}) {
    for (const BiasKind bias : {BiasKind::none, BiasKind::vector, BiasKind::matrix, BiasKind::alibi}) {
      for (const auto& [Nq, Nk] : {std::pair{4, 4}, std::pair{3, 6}, std::pair{6, 3}, std::pair{1, 5}}) {
        const auto& [H, Hkv] = heads[mixtures++ % heads.size()];
        FullProblem p = problem_of(2, H, Hkv, Nq, Nk, 3);
        p.scale = causal ? -0.7f : 0.9f;  // never the default
        p.causal = causal;
        p.bias = bias;
        p.bias_per_batch = H == 4;
        p.bias_per_head = H != 3 || bias == BiasKind::alibi;
        p.bias_gradient = bias == BiasKind::matrix;
        add_options(p, causal ? Window{1, Window::open} : Window{2, 1}, problems);
      }
      if (bias == BiasKind::vector || bias == BiasKind::matrix) continue;
      FullProblem p = problem_of(1, 4, 2, 9, 8, 3);
      p.sequences = {{0, 3, 3, 8, 9}, {0, 2, 4, 4, 8}};  // one without queries, one without keys
      p.bias = bias;
      p.causal = causal;
      add_options(p, {1, 1}, problems);
    }
  }
  return problems;
}

/// The scaled, biased and masked score, from the definition alone.
double score(const FullProblem& p, const InputsOf<double>& in, int b, int h, int i, int j) {
  int own = i + p.Nk - p.Nq;
  for (std::size_t s = 0; s + 1 < p.sequences.queries.size(); ++s) {
    const auto& [queries, keys] = p.sequences;
    if (i < queries[s] || i >= queries[s + 1]) continue;
    if (j < keys[s] || j >= keys[s + 1]) return -infinity;
    own = i - queries[s + 1] + keys[s + 1];  // the last query of a sequence stands at its last key
  }
  if (p.causal && j > own) return -infinity;
  if (p.window.left >= 0 && j < own - p.window.left) return -infinity;
  if (p.window.right >= 0 && j > own + p.window.right) return -infinity;
  double dot = 0, q_square = 0, k_square = 0;
  for (int c = 0; c < p.d; ++c) {
    const double q = in.Q(b, h, i, c), k = in.K(b, h / (p.H / p.Hkv), j, c);
    dot += q * k, q_square += q * q, k_square += k * k;
  }
  if (p.score == Score::lorentz) dot = -std::acosh(std::sqrt(1 + q_square) * std::sqrt(1 + k_square) - dot);
  double bias = 0;
  if (p.bias == BiasKind::vector) bias = in.bias(b, h, 0, j);
  if (p.bias == BiasKind::matrix) bias = in.bias(b, h, i, j);
  if (p.bias == BiasKind::alibi) bias = -in.bias(b, h, 0, 0) * std::abs(own - j);
  const double scaled = static_cast<double>(p.scale) * dot, c = p.softcap;
  return (p.softcap > 0 ? c * std::tanh(scaled / c) : scaled) + bias;
}

/// The factor of a weight, of the words alone.
double kept(const FullProblem& p, int b, int h, int i, int j) {
  const auto& [queries, keys] = p.sequences;
  int row = i, key = j;
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    if (queries[s] <= i && i < queries[s + 1]) b = static_cast<int>(s), row = i - queries[s], key = j - keys[s];
  }
  const auto u = [](int n) { return static_cast<std::uint32_t>(n); };
  const FourWords words = philox({{u(key & ~16), u(row / 2), u(b * p.H + h), 0}}, p.dropout.seed);
  const double probability = p.dropout.probability;
  return words.word[2 * (row % 2) + (key >> 4 & 1)] < probability * 0x1p32 ? 0 : 1 / (1 - probability);
}

/// The time component of a row.
double time_of(const HostTensor<double>& points, int b, int h, int row) {
  double square = 1;
  for (int c = 0; c < points.shape[3]; ++c) square += points(b, h, row, c) * points(b, h, row, c);
  return std::sqrt(square);
}

/// O and L straight from the definition, without subtracting a max.
void check_forward(const FullProblem& p, const InputsOf<double>& in) {
  const Results<double> got = exact_results(p, in, Pass::forward).results;
  CHECK(got.dQ.empty());
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) {
      for (int i = 0; i < p.Nq; ++i) {
        double sum = 0, square = 0;  // of the weights; with centroids the Lorentz norm of the weighted sum, and its square
        std::vector<double> all_O(static_cast<std::size_t>(p.d), 0.0);
        for (int j = 0; j < p.Nk; ++j) {
          const double weight = std::exp(score(p, in, b, h, i, j));
          sum += weight * (p.values == Values::centroid ? time_of(in.V, b, h / (p.H / p.Hkv), j) : 1);
          for (int c = 0; c < p.d; ++c)
            all_O[static_cast<std::size_t>(c)] += weight * kept(p, b, h, i, j) * in.V(b, h / (p.H / p.Hkv), j, c);
        }
        for (const double O : all_O) square += O * O;
        if (p.values == Values::centroid) sum = std::sqrt(sum * sum - square);
        const double L = std::log(sum);
        if (sum == 0) {
          CHECK(got.L(b, h, i, 0) == -infinity);
        } else {
          CHECK(std::abs(got.L(b, h, i, 0) - L) <= 1e-13 * (1 + std::abs(L)));
        }
        for (int c = 0; c < p.d; ++c) {
          const double O = sum > 0 ? all_O[static_cast<std::size_t>(c)] / sum : 0;
          CHECK(std::abs(got.O(b, h, i, c) - O) <= 1e-13 * (1 + std::abs(O)));
        }
      }
    }
  }
}

/// The number whose gradients dQ, dK, dV are: sum of O o dO.
double loss(const FullProblem& p, const InputsOf<double>& in) {
  const Results<double> results = exact_results(p, in, Pass::forward).results;
  double sum = 0;
  for (std::size_t n = 0; n < results.O.values.size(); ++n) sum += results.O.values[n] * in.dO.values[n];
  return sum;
}

/// Every component of dQ, dK, dV and, if asked for, dBias against (loss(x + step) - loss(x - step)) / (2 step), whose error is about step^2.
void check_gradients(const FullProblem& p, InputsOf<double> in, double tolerance = 2e-7) {
  constexpr double step = 1e-4;
  const Results<double> got = exact_results(p, in, Pass::backward).results;
  const auto check = [&](HostTensor<double>& input, const HostTensor<double>& gradient) {
    REQUIRE(gradient.values.size() == input.values.size());
    double worst = 0;
    for (std::size_t n = 0; n < input.values.size(); ++n) {
      const double x = input.values[n];
      input.values[n] = x + step;
      const double above = loss(p, in);
      input.values[n] = x - step;
      const double below = loss(p, in);
      input.values[n] = x;
      const double difference = std::abs(gradient.values[n] - (above - below) / (2 * step));
      if (!(difference <= worst)) worst = difference;  // keeps a NaN
    }
    CHECK(worst <= tolerance);
  };
  check(in.Q, got.dQ);
  check(in.K, got.dK);
  check(in.V, got.dV);
  if (p.bias_gradient) check(in.bias, got.dBias);
  CHECK(got.dBias.empty() == !p.bias_gradient);
}

}  // namespace

TEST_CASE("reference: the forward pass is the definition, on every option") {
  Features defined = plain_problem;
  for (const FullProblem& p : problems_with_options()) {
    defined = defined | features_of(p);
    CAPTURE(describe(p));
    check_forward(p, random_inputs<double>(p, Pass::forward));
  }
  CHECK(names_of(~defined) == "");  // a reference that ignored an option would agree with a kernel that does, too
}

TEST_CASE("reference: gradients agree with central finite differences, on every option (long)") {
  for (const FullProblem& p : problems_with_options()) {
    CAPTURE(describe(p));
    check_gradients(p, random_inputs<double>(p, Pass::backward));
  }
}

TEST_CASE("reference: -inf in a bias is a mask: forward, gradients, and rows that lose all their keys") {
  FullProblem p = problem_of(2, 2, 1, 5, 6, 3);
  for (const bool causal : {false, true}) {
    p.causal = causal;
    p.bias = BiasKind::matrix;
    p.bias_gradient = true;
    InputsOf<double> in = random_inputs<double>(p, Pass::backward);
    for (int i = 0; i < p.Nq; ++i) {
      for (int j = 0; j < p.Nk; ++j) {
        if (i == 3 || (i + 2 * j) % 4 == 0) in.bias(0, 1, i, j) = -infinity;
      }
    }
    check_forward(p, in);
    check_gradients(p, in);
    const Results<double> got = exact_results(p, in, Pass::backward).results;
    CHECK(got.L(0, 1, 3, 0) == -infinity);
    for (int c = 0; c < p.d; ++c) {
      CHECK(got.O(0, 1, 3, c) == 0.0);
      CHECK(got.dQ(0, 1, 3, c) == 0.0);
    }
  }
}

TEST_CASE("reference: more rows than one block of queries") {
  // 300 queries are two blocks, whose parts of dK and dV add up.
  FullProblem p = problem_of(1, 1, 1, 300, 2, 2);
  p.causal = false;
  check_forward(p, random_inputs<double>(p, Pass::forward));
  check_gradients(p, random_inputs<double>(p, Pass::backward));
}

}  // namespace flash
