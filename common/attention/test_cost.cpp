#include "common/attention/cost.hpp"
#include "common/attention/option_table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace flash {

TEST_CASE("cost: bounds, pairs and visited tiles agree with its definition, pair by pair") {
  FullProblem p;
  for (const bool causal : {false, true}) {
    p.causal = causal;
    for (const auto [left, right] :
         {Window{}, Window{0, 0}, Window{2, -1}, Window{-1, 1}, Window{3, 2}, Window{1, 100}, Window{100, 0}}) {
      p.window = {left, right};
      for (p.Nq = 1; p.Nq <= 11; p.Nq += 2) {
        for (p.Nk = 1; p.Nk <= 14; ++p.Nk) {
          CAPTURE(describe(p));
          const OptionsProblem& base = p;
          const Tiles tiles{2, 3};
          std::int64_t pairs = 0, pairs_of_tiles = 0, seen = 0;
          for (int i = 0; i < p.Nq; ++i) {
            const int own = i + p.Nk - p.Nq;  // the last query stands at the last key
            for (int j = 0; j < p.Nk; ++j) {
              const bool sees = (left < 0 || own - left <= j) && (right < 0 || j <= own + right) && (!causal || j <= own);
              CHECK(base.visible(i, j) == sees);
              CHECK((p.lowest() <= j - i && j - i <= p.highest()) == sees);
              CHECK(p.keys_of(i).contain(j) == sees);
              CHECK((base.first_query(j) <= i && i < base.end_query(j)) == sees);
              pairs += sees;
            }
          }
          CHECK(visible_pairs(p) == pairs);
          for (int j0 = 0; j0 < p.Nk; j0 += tiles.Bc) {
            bool any_query = false;
            for (int i0 = 0; i0 < p.Nq; i0 += tiles.Br) {
              bool any = false;
              for (int i = i0; i < std::min(i0 + tiles.Br, p.Nq); ++i) {
                for (int j = j0; j < std::min(j0 + tiles.Bc, p.Nk); ++j) any = any || base.visible(i, j);
              }
              pairs_of_tiles += any;
              any_query = any_query || any;
            }
            seen += any_query ? std::min(tiles.Bc, p.Nk - j0) : 0;
          }
          CHECK(visits(p, tiles).tiles == pairs_of_tiles);
          CHECK(visits(p, tiles).seen == seen);
        }
      }
    }
  }
}

TEST_CASE("cost: the tiles of a ragged batch: each once, those that visit most first, and those that visit none too") {
  FullProblem p;  // also without queries, without keys, and with more queries than keys
  p.sequences = {{0, 3, 3, 10, 14, 15}, {0, 5, 9, 9, 11, 18}};
  p.Nq = 15, p.Nk = 18, p.causal = true;
  const auto order = [&](Pass pass) {
    std::string text;
    const std::vector<int> pairs = longest_first(p, pass, {2, 3});
    for (std::size_t n = 0; n < pairs.size(); n += 2)
      text += std::to_string(pairs[n]) + ":" + std::to_string(pairs[n + 1]) + " ";
    return text;
  };
  CHECK(order(Pass::forward) == "4:0 0:0 0:2 3:2 2:0 2:2 2:4 2:6 3:0 ");  // visit 3, 2, 2, 1 tiles of keys, the last five none
  CHECK(order(Pass::backward) == "0:0 0:3 3:0 4:0 4:3 4:6 1:0 1:3 ");
  const Visits v = visits(p, {2, 3});
  CHECK(v.tiles == 8);
  CHECK(v.query_tiles == 9);
  CHECK(v.key_tiles == 8);
  p.sequences = {{0, 4}, {0, 4}};
  p.Nq = p.Nk = 4, p.window.left = 1;
  CHECK(order(Pass::forward) == "0:2 0:0 ");  // queries 2 and 3 see keys 1 to 3, in two tiles
}

TEST_CASE("cost: FLOPs are 4 B H Nq Nk d forward, 2.5 times that backward, the true pairs under a causal mask") {
  FullProblem p;
  p.B = 2, p.H = 3, p.Hkv = 1, p.Nq = 5, p.Nk = 7, p.d = 11;
  CHECK(flops(p, Pass::forward) == 4.0 * 2 * 3 * 5 * 7 * 11);
  CHECK(flops(p, Pass::backward) == 10.0 * 2 * 3 * 5 * 7 * 11);
  p.causal = true;  // 3 + 4 + 5 + 6 + 7 visible pairs
  CHECK(flops(p, Pass::forward) == 4.0 * 2 * 3 * 25 * 11);
  p = {};
  p.B = p.H = p.Hkv = 64, p.Nq = p.Nk = 1 << 20, p.d = 128;
  CHECK(flops(p, Pass::forward) == 4.0 * 64 * 64 * 1048576.0 * 1048576.0 * 128);  // 2^61: no 32-bit product on the way
}

TEST_CASE("cost: compulsory bytes, each input read once, each output written once") {
  FullProblem p;
  p.B = 2, p.H = 4, p.Hkv = 2, p.Nq = 5, p.Nk = 7, p.d = 8;
  const double q = 2 * 4 * 5 * 8, k = 2 * 2 * 7 * 8, lse = 2 * 4 * 5;  // elements
  CHECK(compulsory_bytes(p, Pass::forward) == 4 * (2 * q + 2 * k + lse));
  CHECK(compulsory_bytes(p, Pass::backward) == 4 * (4 * q + 4 * k + lse));  // Q O dO dQ, K V dK dV
  p.dtype = Dtype::fp16;
  CHECK(compulsory_bytes(p, Pass::forward) == 2 * (2 * q + 2 * k) + 4 * lse);
  p.bias = BiasKind::matrix;  // [1, H, Nq, Nk] in fp32, read by both passes
  CHECK(compulsory_bytes(p, Pass::forward) == 2 * (2 * q + 2 * k) + 4 * (lse + 4 * 5 * 7));
  CHECK(compulsory_bytes(p, Pass::backward) == 2 * (4 * q + 4 * k) + 4 * (lse + 4 * 5 * 7));
}

}  // namespace flash
