// Two parts of a row, merged by the simulator, against the same sum in double precision.
#include "common/attention/placement.hpp"
#include "common/binding/merge.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace flash {
namespace {

constexpr float NO_KEYS = -std::numeric_limits<float>::infinity();
const std::vector<std::pair<float, float>> PAIRS = {{0.5f, -1.0f},   {-2.0f, 3.0f},     {300.0f, 299.0f}, {-300.0f, -298.0f},
                                                    {90.0f, -90.0f}, {NO_KEYS, 2.0f},   {-7.0f, NO_KEYS}, {NO_KEYS, 500.0f},
                                                    {4.0f, 4.0f},    {NO_KEYS, NO_KEYS}};

/// Each row has its own pair of log-sum-exps. The parts that see no key have O = 0, as the kernels leave it.
template <class Part>
void check(Dtype part_dtype) {
  constexpr std::size_t d = 40;
  const auto N = static_cast<std::int64_t>(PAIRS.size());
  const std::array<std::int64_t, 4> shape{2, 3, N, d}, rows{2, 3, N, 1};
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> O, L, part_L;
  std::vector<Part> part_O;
  for (std::size_t row = 0; row < 6 * PAIRS.size(); ++row) {
    const auto [L_a, L_b] = PAIRS[row % PAIRS.size()];
    L.push_back(L_a);
    part_L.push_back(L_b);
    for (std::size_t c = 0; c < d; ++c) {
      O.push_back(L_a == NO_KEYS ? 0.0f : uniform(random));
      part_O.push_back(static_cast<Part>(L_b == NO_KEYS ? 0.0f : uniform(random)));
    }
  }
  const auto O_before = O;

  Attention a;
  a.O = {O.data(), "O", Dtype::fp32, shape, dense_strides(shape)};
  a.L = {L.data(), "L", Dtype::fp32, rows, dense_strides(rows)};
  a.workspaces = {{part_O.data(), "part_O", part_dtype, shape, dense_strides(shape)},
                  {part_L.data(), "part_L", Dtype::fp32, rows, dense_strides(rows)}};
  merge_on_cpu(a);

  for (std::size_t row = 0; row < L.size(); ++row) {
    const double L_a = PAIRS[row % PAIRS.size()].first, L_b = part_L[row], most = std::max(L_a, L_b);
    CAPTURE(L_a);
    CAPTURE(L_b);
    const bool seen = most > NO_KEYS;
    const double weight_a = seen ? std::exp(L_a - most) : 0, weight_b = seen ? std::exp(L_b - most) : 0;
    const double sum = seen ? weight_a + weight_b : 1;
    if (seen) CHECK(L[row] == doctest::Approx(most + std::log(sum)).epsilon(1e-6));
    if (!seen) CHECK(L[row] == NO_KEYS);
    for (std::size_t c = row * d; c < (row + 1) * d; ++c)
      CHECK(std::abs(O[c] - (weight_a * O_before[c] + weight_b * static_cast<float>(part_O[c])) / sum) <= 1e-6);
  }
}

}  // namespace

TEST_CASE("merge: whatever the part's type") {
  check<float>(Dtype::fp32);
  check<__half>(Dtype::fp16);
  check<__nv_bfloat16>(Dtype::bf16);
}

}  // namespace flash
