// What chapter 03 claims. The grid that every stage passes is in common/grid.
#include "03_online_softmax/1_one_pass.cuh"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace flash {
namespace {

constexpr RowStats empty{-INFINITY, 0.0f};

/// Scores with masked ones among them, reproducible.
std::vector<float> random_scores(std::mt19937_64& bits, std::size_t count) {
  std::vector<float> scores(count);
  for (float& score : scores) {
    const double uniform = static_cast<double>(bits() >> 11) * 0x1p-53;
    score = bits() % 9 == 0 ? -INFINITY : static_cast<float>(200.0 * uniform - 100.0);
  }
  return scores;
}

/// (2.3), (2.4) in double precision, in two passes.
std::pair<double, double> two_pass(const std::vector<float>& scores) {
  double m = -INFINITY, l = 0;
  for (const float score : scores) m = std::max(m, static_cast<double>(score));
  for (const float score : scores) l += score == -INFINITY ? 0.0 : std::exp(score - m);
  return {m, l};
}

RowStats one_pass(const float* begin, const float* end) {
  RowStats stats = empty;
  for (; begin != end; ++begin) stats = extend(stats, *begin);
  return stats;
}

TEST_CASE("chapter: one pass gives the two-pass result (3.2)") {
  std::mt19937_64 bits(31);
  for (std::size_t count = 0; count < 300; ++count) {
    const std::vector<float> scores = random_scores(bits, count);
    const auto [m, l] = two_pass(scores);
    const RowStats stats = one_pass(scores.data(), scores.data() + count);
    CHECK(static_cast<double>(stats.m) == m);
    CHECK(static_cast<double>(stats.l) == doctest::Approx(l).epsilon(1e-5));
  }
}

TEST_CASE("chapter: random splits, merged in random order, agree (3.4)") {
  std::mt19937_64 bits(32);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<float> scores = random_scores(bits, 1 + bits() % 500);
    const auto [m, l] = two_pass(scores);

    // Cut at random places (a part may be empty), then merge two random parts at a time until one is left.
    std::vector<std::size_t> cuts{0, scores.size()};
    for (std::uint64_t cut = bits() % 12; cut > 0; --cut) cuts.push_back(bits() % (scores.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<RowStats> parts;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) parts.push_back(one_pass(&scores[0] + cuts[i], &scores[0] + cuts[i + 1]));
    while (parts.size() > 1) {
      std::swap(parts[bits() % parts.size()], parts.back());
      const RowStats last = parts.back();
      parts.pop_back();
      RowStats& other = parts[bits() % parts.size()];
      other = merge(last, other);
    }
    CHECK(static_cast<double>(parts[0].m) == m);
    CHECK(static_cast<double>(parts[0].l) == doctest::Approx(l).epsilon(1e-5));
  }
}

TEST_CASE("chapter: the merge has a neutral element, commutes and is associative") {
  std::mt19937_64 bits(33);
  for (int trial = 0; trial < 200; ++trial) {
    RowStats stats[3];
    for (RowStats& s : stats) {
      const std::vector<float> scores = random_scores(bits, bits() % 20);
      s = one_pass(scores.data(), scores.data() + scores.size());
    }
    const auto [a, b, c] = stats;
    CHECK(merge(a, empty).m == a.m);
    CHECK(merge(a, empty).l == a.l);
    CHECK(merge(empty, a).l == a.l);
    CHECK(merge(a, b).m == merge(b, a).m);
    CHECK(merge(a, b).l == doctest::Approx(merge(b, a).l).epsilon(1e-6));
    CHECK(merge(merge(a, b), c).m == merge(a, merge(b, c)).m);
    CHECK(merge(merge(a, b), c).l == doctest::Approx(merge(a, merge(b, c)).l).epsilon(1e-5));
  }
  CHECK(merge(empty, empty).m == empty.m);
  CHECK(merge(empty, empty).l == 0.0f);  // not NaN
}

TEST_CASE("cpu: S is read twice and P written once (3.7)") {
  for (const FullProblem& p :
       grid::counted({grid::problem_of({.Nq = 33, .Nk = 40, .d = 24}), grid::problem_of({.Nq = 72, .Nk = 104, .d = 40}),
                      grid::problem_of({.Nq = 113, .Nk = 203, .d = 59})})) {
    for (const Variant& v : grid::variants()) grid::check_prediction(v, p, Pass::forward);
  }
}

}  // namespace
}  // namespace flash
