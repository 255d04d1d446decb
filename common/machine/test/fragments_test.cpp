// The index functions of fragments.hpp: no element twice or left out, and no bank met twice by what is handled at once.
#include "common/machine/isa/fragments.hpp"
#include "common/machine/engine/access_log.hpp"

#include <doctest/doctest.h>

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

}  // namespace flash
