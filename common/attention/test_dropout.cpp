// The generator against its authors' answers, and the mask against what (9.11) says of it.
#include "common/attention/dropout.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

namespace flash {
namespace {

/// Of the weights of some heads, queries and keys, those that are kept.
int count_kept(const DropMask& mask, int heads, int queries, int keys) {
  int kept = 0;
  for (int h = 0; h < heads; ++h) {
    for (int i = 0; i < queries; ++i) {
      for (int j = 0; j < keys; ++j) kept += mask(h, i, j) != 0.0f;
    }
  }
  return kept;
}

}  // namespace

TEST_CASE("dropout: Philox4x32-10 gives the three answers that its authors publish with Random123") {
  struct Known {
    FourWords counter;
    std::uint64_t key;
    FourWords answer;
  };
  constexpr std::uint32_t ones = 0xFFFFFFFF;
  for (const auto& [counter, key, answer] :
       {Known{{{0, 0, 0, 0}}, 0, {{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}}},
        Known{{{ones, ones, ones, ones}}, ~std::uint64_t{0}, {{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}}},
        Known{{{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}},
              0x299F31D0A4093822,
              {{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}}}}) {
    const FourWords got = philox(counter, key);
    for (int n = 0; n < 4; ++n) CHECK(got.word[n] == answer.word[n]);
  }
}

TEST_CASE("dropout: two neighbouring queries and two keys that are 16 apart share a call and take a word each") {
  const DropMask mask({0.5f, 2026});
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 64; ++j) {
      const FourWords own =
          philox({{static_cast<std::uint32_t>(j % 16 + j / 32 * 32), static_cast<std::uint32_t>(i / 2), 5, 0}}, 2026);
      CHECK(mask(5, i, j) == (own.word[2 * (i % 2) + j / 16 % 2] < 0x80000000 ? 0.0f : 2.0f));
    }
  }
}

TEST_CASE("dropout: the share of kept weights is 1 - p within four standard deviations, and they grow by 1 / (1 - p)") {
  for (const float p : {0.01f, 0.1f, 0.5f, 0.9f}) {
    const DropMask mask({p, 2026});
    constexpr int n = 8 * 128 * 128;
    const double deviation = std::sqrt(n * static_cast<double>(p) * (1 - static_cast<double>(p)));
    CHECK(std::abs(count_kept(mask, 8, 128, 128) - n * (1 - static_cast<double>(p))) <= 4 * deviation);
    CHECK(mask.kept == doctest::Approx(1 / (1 - p)));
  }
}

TEST_CASE("dropout: seed, head, query and key each change which weights are kept, half of them for p = 1/2") {
  const DropMask mask({0.5f, 1}), low({0.5f, 2}), high({0.5f, 1 + (std::uint64_t{1} << 32)});
  int other_seed = 0, other_high = 0, other_head = 0, other_query = 0, other_key = 0, distant_key = 0;
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 64; ++j) {
      const float here = mask(3, i, j);
      other_seed += here != low(3, i, j);
      other_high += here != high(3, i, j);
      other_head += here != mask(4, i, j);
      other_query += here != mask(3, i + 1, j);
      other_key += here != mask(3, i, j + 1);
      distant_key += here != mask(3, i, j + 16);
    }
  }
  for (const int changed : {other_seed, other_high, other_head, other_query, other_key, distant_key}) {
    CHECK(std::abs(changed - 2048) <= 4 * 32);  // the deviation of 4096 tosses is 32
  }
}

TEST_CASE("dropout: the smallest probability can drop a weight, and the largest can keep one") {
  CHECK(DropMask({1e-12f, 0}).threshold == 1);
  CHECK(DropMask({std::nextafter(1.0f, 0.0f), 0}).threshold == 0xFFFFFF00);
}

}  // namespace flash
