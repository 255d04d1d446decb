// Swizzles and padding of fragments.hpp: no element twice or left out, no bank hit twice by what is accessed at once. Tensors that the TMA takes.
#include "common/machine/isa/fragments.hpp"
#include "common/machine/engine/access_log.hpp"
#include "common/machine/isa/tensor_map.hpp"

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace flash {
namespace {

using namespace fragment;

constexpr int widths[] = {32, 64, 96, 128, 256};

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

TEST_CASE("tensor maps: strides in bytes, and what is refused") {
  alignas(16) static char memory[64];
  const TensorRef good{memory, "K", Dtype::fp16, {2, 3, 50, 64}, {9600, 64, 192, 1}};  // (B,N,H,d)
  CHECK(tensor_map_strides(good) == std::array<std::int64_t, 3>{384, 128, 19200});
  CHECK_NOTHROW(require_tensor_map(good, 256));
  CHECK_THROWS_AS(require_tensor_map(good, 257), std::logic_error);
  const std::pair<void (*)(TensorRef&), const char*> wrong[]{
      {[](TensorRef& t) { t.dtype = Dtype::fp32; }, "16 bits"},
      {[](TensorRef& t) { t.stride[3] = 2; }, "columns"},
      {[](TensorRef& t) { t.data = memory + 8; }, "address"},
      {[](TensorRef& t) { t.shape[1] = 0; }, "extent"},
      {[](TensorRef& t) { t.stride[1] = 59; }, "a stride is not a multiple of 16 bytes"},
      {[](TensorRef& t) { t.stride[0] = std::int64_t{1} << 39; }, "2^40"}};
  for (const auto& [change, names] : wrong) {
    TensorRef bad = good;
    change(bad);
    CHECK(why_no_tensor_map(bad).find(names) != std::string::npos);
    CHECK_THROWS_AS(require_tensor_map(bad, 64), std::logic_error);
  }
}

}  // namespace flash
