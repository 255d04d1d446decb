// The generator against its authors' answers, and the mask against what (9.11) says of it.
#include "common/attention/dropout.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

namespace flash {

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

TEST_CASE("dropout: the smallest probability can drop a weight, and the largest can keep one") {
  CHECK(DropMask({1e-12f, 0}).threshold == 1);
  CHECK(DropMask({std::nextafter(1.0f, 0.0f), 0}).threshold == 0xFFFFFF00);
}

}  // namespace flash
