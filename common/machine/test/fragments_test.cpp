// The index functions of fragments.hpp: no element twice or left out, and no bank met twice by what is handled at once.
#include "common/machine/isa/fragments.hpp"
#include "common/machine/engine/access_log.hpp"
#include "common/machine/isa/float16.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace flash {
namespace {

using namespace fragment;

constexpr int widths[] = {32, 64, 96, 128, 256};

/// How many different (row, col) the lanes' elements are, all of them within [rows, cols]; -1 if one is outside.
template <class Place>
int places(int rows, int cols, int registers, int halves, Place place) {
  std::set<std::pair<int, int>> found;
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < registers; ++reg) {
      for (int which = 0; which < halves; ++which) {
        const std::pair<int, int> at = place(lane, reg, which);
        if (at.first < 0 || at.first >= rows || at.second < 0 || at.second >= cols) return -1;
        found.insert(at);
      }
    }
  }
  return static_cast<int>(found.size());
}

/// Byte address of element (row, col) of a tile of 16-bit numbers.
std::uintptr_t address(int stride, int row, int col) { return static_cast<std::uintptr_t>(2 * (row * stride + col)); }

/// Extra cycles of an access in which lane i of `lanes` touches `bytes` at place(i).
template <class Place>
std::uint64_t conflicts(int lanes, int bytes, Place place) {
  machine::WarpAccess access;
  for (int i = 0; i < lanes; ++i) {
    access.lanes |= 1u << i;
    access.address[static_cast<std::size_t>(i)] = place(i);
  }
  return machine::bank_conflicts(access, bytes);
}

/// Eight rows at a chunk: a matrix of an ldmatrix.
std::uint64_t ldmatrix_conflicts(int width, int row0, int chunk, bool swizzle) {
  return conflicts(
      8, 16, [&](int i) { return address(width, row0 + i, 8 * (swizzle ? swizzled_chunk(width, row0 + i, chunk) : chunk)); });
}

}  // namespace

TEST_CASE("fragments: every element of a tile is in one place") {
  const auto a = [](int lane, int reg, int which) { return std::pair(a_row(lane, reg), a_col(lane, reg, which)); };
  const auto b = [](int lane, int reg, int which) { return std::pair(b_row(lane, reg, which), b_col(lane)); };
  const auto c = [](int lane, int reg, int) { return std::pair(c_row(lane, reg), c_col(lane, reg)); };
  const auto m = [](int lane, int, int which) { return std::pair(ldmatrix_row(lane), ldmatrix_col(lane, which)); };
  const auto t = [](int lane, int, int which) { return std::pair(ldmatrix_trans_row(lane, which), ldmatrix_trans_col(lane)); };
  CHECK(places(16, 16, 4, 2, a) == 256);
  CHECK(places(16, 8, 2, 2, a) == 128);
  CHECK(places(16, 8, 2, 2, b) == 128);
  CHECK(places(8, 8, 1, 2, b) == 64);
  CHECK(places(16, 8, 4, 1, c) == 128);
  CHECK(places(8, 8, 1, 2, m) == 64);
  CHECK(places(8, 8, 1, 2, t) == 64);
}

TEST_CASE("fragments: what ldmatrix delivers and what accumulators hold are operands") {
  for (int lane = 0; lane < 32; ++lane) {
    for (int which = 0; which < 2; ++which) {
      for (int reg = 0; reg < 4; ++reg) {  // matrix `reg` of an x4 begins at row 8 (reg % 2), column 8 (reg / 2) of A
        CHECK(a_row(lane, reg) == 8 * (reg % 2) + ldmatrix_row(lane));
        CHECK(a_col(lane, reg, which) == 8 * (reg / 2) + ldmatrix_col(lane, which));
        // Two neighbouring n8 tiles of C, four registers each: register `reg` of A holds numbers 2 (reg % 2) and + 1 of tile reg / 2.
        CHECK(a_row(lane, reg) == c_row(lane, 2 * (reg % 2) + which));
        CHECK(a_col(lane, reg, which) == 8 * (reg / 2) + c_col(lane, 2 * (reg % 2) + which));
      }
      for (int reg = 0; reg < 2; ++reg) {
        // B [k, n] from a tile whose rows are n (such as K for Q K^T) comes plain, from one whose rows are k (V for P V) transposed.
        CHECK(b_row(lane, reg, which) == 8 * reg + ldmatrix_col(lane, which));
        CHECK(b_col(lane) == ldmatrix_row(lane));
        CHECK(b_row(lane, reg, which) == 8 * reg + ldmatrix_trans_row(lane, which));
        CHECK(b_col(lane) == ldmatrix_trans_col(lane));
      }
    }
  }
}

TEST_CASE("swizzle: a permutation of each row that keeps neighbours together") {
  for (const int width : widths) {
    for (int row = 0; row < 64; ++row) {
      std::set<int> found;
      for (int col = 0; col < width; ++col) {
        const int at = swizzled_col(width, row, col);
        CHECK((at >= 0 && at < width));
        CHECK(at % 8 == col % 8);
        CHECK(at == 8 * swizzled_chunk(width, row, col / 8) + col % 8);
        found.insert(at);
      }
      CHECK(found.size() == static_cast<std::size_t>(width));
    }
  }
}

TEST_CASE("swizzle: no bank conflicts") {
  for (const int width : widths) {
    const int chunks = width / 8;
    for (int row0 = 0; row0 < 16; ++row0) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        CHECK(ldmatrix_conflicts(width, row0, chunk, true) == 0);
        // Without it: 8 rows in one group of banks; with rows of 64 or 192 bytes 4 in each of two.
        CHECK(ldmatrix_conflicts(width, row0, chunk, false) == (width % 64 == 0 ? 7u : 3u));
        // A fragment of C as 16-bit pairs, lane (g, t) to row g: what rounds an accumulator into a tile.
        CHECK(conflicts(32, 4, [&](int lane) {
                const int row = row0 + c_row(lane, 0);
                return address(width, row, swizzled_col(width, row, 8 * chunk + c_col(lane, 0)));
              }) == 0);
      }
    }
    // A quarter warp of a copy: eight chunks in a row, from any multiple of eight on, over the end of a row if it comes.
    for (int first = 0; first < 16 * chunks; first += 8) {
      CHECK(conflicts(8, 16, [&](int i) {
              const int row = (first + i) / chunks, chunk = (first + i) % chunks;
              return address(width, row, 8 * swizzled_chunk(width, row, chunk));
            }) == 0);
    }
  }
}

TEST_CASE("padding by one chunk: no bank conflicts of 32-bit words of a fragment, nor of ldmatrix") {
  for (const int width : widths) {
    const int stride = width + 8;
    for (int col = 0; col < width; col += 8) {
      CHECK(conflicts(32, 4, [&](int lane) { return address(stride, a_row(lane, 0), col + a_col(lane, 0)); }) == 0);
      CHECK(conflicts(8, 16, [&](int i) { return address(stride, i, col); }) == 0);
      // Without padding rows meet in one bank, or, with rows of 64 or 192 bytes, in two.
      CHECK(conflicts(32, 4, [&](int lane) { return address(width, a_row(lane, 0), col + a_col(lane, 0)); }) ==
            (width % 64 == 0 ? 7u : 3u));
    }
  }
}

TEST_CASE("page on fragments: the addresses that lanes pass to ldmatrix.x4") {
  const auto plain = [](int i) { return std::pair(i % 16, 8 * (i / 16)); };  // for A from A, and with .trans for B from B
  const auto crossed = [](int i) { return std::pair(i % 8 + 8 * (i / 16), 8 * (i / 8 % 2)); };
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < 4; ++m) {
      for (int which = 0; which < 2; ++which) {
        // Rows of matrix m begin where lane 8 m points to: (row, col) of the tile X.
        const auto got = [&](auto address, bool trans) {
          const int row = trans ? ldmatrix_trans_row(lane, which) : ldmatrix_row(lane);
          const int col = trans ? ldmatrix_trans_col(lane) : ldmatrix_col(lane, which);
          return std::pair(address(8 * m + row).first, address(8 * m + row).second + col);
        };
        const std::pair A(a_row(lane, m), a_col(lane, m, which));
        const std::pair B(b_row(lane, m % 2, which), 8 * (m / 2) + b_col(lane));  // of n8 tile m / 2
        CHECK(got(plain, false) == A);
        CHECK(got(crossed, true) == std::pair(A.second, A.first));   // X = A^T
        CHECK(got(crossed, false) == std::pair(B.second, B.first));  // X = B^T
        CHECK(got(plain, true) == B);
      }
    }
  }
}

TEST_CASE("page on fragments: the lane of an element (F.3), exercises 1, 4 and 6") {
  for (int lane = 0; lane < 32; ++lane) {
    const auto holder = [](int row, int col) { return 4 * (row % 8) + col % 8 / 2; };
    for (int r = 0; r < 4; ++r) {
      CHECK(holder(a_row(lane, r), a_col(lane, r, 1)) == lane);
      CHECK(a_row(lane, r) / 8 + 2 * (a_col(lane, r) / 8) == r);
      CHECK(holder(c_row(lane, r), c_col(lane, r)) == lane);
      CHECK(2 * (c_row(lane, r) / 8) + c_col(lane, r) % 2 == r);
    }
    for (int r = 0; r < 2; ++r) {
      CHECK(holder(b_col(lane), b_row(lane, r, 1)) == lane);
      for (int which = 0; which < 2; ++which) {  // accumulators as B = S^T: queries 0 to 7 and 8 to 15
        CHECK(std::pair(b_row(lane, 0, which), b_col(lane)) ==
              std::pair(c_col(lane, 2 * r + which), c_row(lane, 2 * r + which) - 8 * r));
      }
    }
  }
  CHECK((a_row(15, 1) == 11 && a_col(15, 1, 0) == 6));
  CHECK((b_row(25, 1, 1) == 11 && b_col(25) == 6));
  CHECK((c_row(15, 2) == 11 && c_col(15, 2) == 6));
  CHECK(float_to_half(std::exp(-17.32f)) != 0);
  CHECK(float_to_half(std::exp(-17.34f)) == 0);
  CHECK(float_to_bfloat16(std::exp(-87.3f)) != 0);
}

TEST_CASE("page on swizzles: an address is a lane's own, xor a constant, plus a constant (W.6)") {
  for (const int width : widths) {
    const bool whole = width % 64 == 0;  // rows of whole lines of 128 bytes
    const int period = whole ? 4 : 2, line = 32 * period;
    for (int i = 0; i < 16; ++i) {  // row i % 8, chunk e of a pair
      const int e = i / 8, row = i % 8;
      const int base = 2 * width * row + 16 * (e ^ swizzled_chunk(width, row, 0));
      for (int k = 0; k < width / 16; ++k) {
        for (int n = 0; n < 4; ++n) {
          const int address = 2 * width * (8 * n + row) + 16 * swizzled_chunk(width, 8 * n + row, 2 * k + e);
          CHECK(address == (base ^ 32 * (k % period)) + line * (k / period) + 16 * width * n);
        }
      }
    }
  }
}

TEST_CASE("page on swizzles: the general rule (W.7) and the exercises") {
  const auto groups = [](int width, auto place) {  // the least number of groups of banks that a column of eight rows meets
    std::size_t least = 8;
    for (int q = 0; q < width / 8; ++q) {
      std::set<int> met;
      for (int row = 0; row < 8; ++row) met.insert((width / 8 * row + place(row, q)) % 8);
      least = std::min(least, met.size());
    }
    return least;
  };
  const auto none = [](int, int q) { return q; };
  for (int width = 8; width <= 256; width += 8) {
    int factor = 1;
    while (factor < 8 && width / 8 % (2 * factor) == 0) factor *= 2;
    const auto general = [=](int row, int q) { return q ^ row / (8 / factor) % factor; };
    CHECK(groups(width, general) == 8);
    CHECK(groups(width, none) == static_cast<std::size_t>(8 / factor));
    for (int row = 0; row < 16; ++row) {
      for (int q = 0; q < width / 8; ++q) {
        CHECK(general(row, q) < width / 8);
        if (width == 32 || width == 96 || width % 64 == 0) CHECK(general(row, q) == swizzled_chunk(width, row, q));
      }
    }
  }
  CHECK(swizzled_chunk(64, 5, 6) == 3);
  CHECK(swizzled_chunk(64, 6, 3) == 5);
  CHECK(groups(96, none) == 2);  // 4 wavefronts
  CHECK(groups(128, none) == 1);
  CHECK((8 ^ 7) >= 96 / 8);
  CHECK(groups(64, [](int row, int q) { return (q + row) % 8; }) == 8);
  CHECK(groups(16, none) == 4);  // 2 wavefronts
  CHECK(groups(80, none) == 4);
}

}  // namespace flash
