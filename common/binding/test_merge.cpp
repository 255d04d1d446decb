// Two parts of a row, merged by the simulator, against the same sum in double precision.
#include "common/attention/placement.hpp"
#include "common/binding/merge.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace flash {
namespace {

constexpr float NO_KEYS = -std::numeric_limits<float>::infinity();
const std::vector<std::pair<float, float>> PAIRS = {{0.5f, -1.0f},   {-2.0f, 3.0f},     {300.0f, 299.0f}, {-300.0f, -298.0f},
                                                    {90.0f, -90.0f}, {NO_KEYS, 2.0f},   {-7.0f, NO_KEYS}, {NO_KEYS, 500.0f},
                                                    {4.0f, 4.0f},    {NO_KEYS, NO_KEYS}};

template <class T>
std::vector<T> values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<T> found(count);
  for (T& value : found) value = static_cast<T>(uniform(random));
  return found;
}

/// Each row has its own pair of log-sum-exps. The parts that see no key have O = 0, as the kernels leave it.
template <class Part>
void check(Dtype part_dtype) {
  constexpr std::int64_t B = 2, H = 3, d = 40;
  const auto N = static_cast<std::int64_t>(PAIRS.size());
  const std::array<std::int64_t, 4> shape{B, H, N, d}, rows{B, H, N, 1};
  std::vector<float> O = values<float>(static_cast<std::size_t>(B * H * N * d), 1);
  std::vector<Part> part_O = values<Part>(O.size(), 2);
  std::vector<float> L(O.size() / d), part_L(O.size() / d);
  for (std::size_t row = 0; row < L.size(); ++row) {
    std::tie(L[row], part_L[row]) = PAIRS[row % PAIRS.size()];
    const std::size_t first = row * d;
    if (L[row] == NO_KEYS) std::fill_n(O.begin() + static_cast<std::ptrdiff_t>(first), d, 0.0f);
    if (part_L[row] == NO_KEYS) std::fill_n(part_O.begin() + static_cast<std::ptrdiff_t>(first), d, static_cast<Part>(0.0f));
  }
  const auto O_before = O;
  const auto L_before = L;

  Attention a;
  a.O = {O.data(), "O", Dtype::fp32, shape, dense_strides(shape)};
  a.L = {L.data(), "L", Dtype::fp32, rows, dense_strides(rows)};
  a.workspaces = {{part_O.data(), "part_O", part_dtype, shape, dense_strides(shape)},
                  {part_L.data(), "part_L", Dtype::fp32, rows, dense_strides(rows)}};
  merge_on_cpu(a);

  for (std::size_t row = 0; row < L.size(); ++row) {
    const double L_a = L_before[row], L_b = part_L[row], most = std::max(L_a, L_b);
    CAPTURE(L_a);
    CAPTURE(L_b);
    if (most == NO_KEYS) {
      CHECK(L[row] == NO_KEYS);
      for (std::size_t c = 0; c < d; ++c) CHECK(O[row * d + c] == 0.0f);
      continue;
    }
    const double sum = std::exp(L_a - most) + std::exp(L_b - most);
    CHECK(L[row] == doctest::Approx(most + std::log(sum)).epsilon(1e-6));
    for (std::size_t c = 0; c < d; ++c) {
      const double before = O_before[row * d + c], part = static_cast<float>(part_O[row * d + c]);
      const double wanted = (std::exp(L_a - most) * before + std::exp(L_b - most) * part) / sum;
      CHECK(std::abs(O[row * d + c] - wanted) <= 1e-6);
    }
  }
}

}  // namespace

TEST_CASE("merge: whatever the part's type") {
  check<float>(Dtype::fp32);
  check<__half>(Dtype::fp16);
  check<__nv_bfloat16>(Dtype::bf16);
}

}  // namespace flash
