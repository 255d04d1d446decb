// Matrices in shared memory as operands of wgmma, and the elements of its accumulators that each thread holds. Kernels and the
// simulator both use these functions.
//
// A tile is stored as panels of 64 columns and all rows: a panel's row of 16-bit elements is 128 bytes. Panel p holds columns
// 64 p to 64 p + 63 and follows panel p - 1; each begins at a multiple of 1024 bytes. Within a panel the 16-byte chunks of row
// r are swizzled by r % 8 (swizzled_chunk(64, r, chunk) of fragments.hpp). A TMA load with a swizzle of 128 bytes writes this
// layout, one load per panel.
#pragma once

#include "common/machine/types.hpp"

namespace flash {

/// The direction in which the tile's columns run in the product: the depth k, or the rows of A (M) and the columns of B (N).
enum class Major { k, mn };

/// The matrix descriptor of an operand, for 16 steps of the depth: "Asynchronous Warpgroup Level Matrix Shared Memory Layout"
/// in the PTX ISA, for a swizzle of 128 bytes. All addresses and distances are in units of 16 bytes.
///
///   low    0..13 address, 16..29 leading offset: from one panel to the next (Major::mn)
///   high   0..13 stride offset: from 8 rows to the next 8; 17..19 zero: patterns begin at multiples of 1024 bytes; 30..31
///          one: 128 bytes
template <Major M>
struct WgmmaOperand {
  unsigned low, high;
};

template <Major M>
FLASH_HOST_DEVICE constexpr WgmmaOperand<M> wgmma_operand(unsigned address, int leading_bytes, int stride_bytes) {
  return {(address / 16 & 0x3FFFu) | static_cast<unsigned>(leading_bytes / 16) << 16,
          static_cast<unsigned>(stride_bytes / 16) | 1u << 30};
}

/// The operand whose depth runs along the columns of a tile with `Rows` rows: element (m, k) is tile(m, k). Q and K of
/// S = Q K^T. Call (kk) is columns 16 kk to 16 kk + 15.
template <int Rows>
struct KMajor {
  static_assert(Rows % 8 == 0, "the swizzle repeats after 8 rows");
  WgmmaOperand<Major::k> first;
  FLASH_HOST_DEVICE constexpr WgmmaOperand<Major::k> operator()(int kk) const {
    // Adding to the lower word alone is cheapest: the upper one never changes.
    return {first.low + static_cast<unsigned>(kk / 4 * Rows * 128 + kk % 4 * 32) / 16, first.high};
  }
};

/// The operand whose depth runs down the rows of a tile with `Rows` rows: element (m, k) is tile(k, m). V of O = P V.
/// Call (kk) is rows 16 kk to 16 kk + 15. Only 16-bit types can be read in this way.
template <int Rows>
struct MnMajor {
  static_assert(Rows % 16 == 0, "a product takes 16 of the depth");
  WgmmaOperand<Major::mn> first;
  FLASH_HOST_DEVICE constexpr WgmmaOperand<Major::mn> operator()(int kk) const {
    return {first.low + static_cast<unsigned>(kk) * 2048 / 16, first.high};
  }
};

/// The operand that begins at `row` of a tile at shared-memory address `tile`; `row` is a multiple of 8.
template <int Rows>
FLASH_HOST_DEVICE constexpr KMajor<Rows> k_major_at(unsigned tile, int row) {
  return {wgmma_operand<Major::k>(tile + static_cast<unsigned>(row) * 128, 16, 1024)};
}
/// The operand that begins at column `col` of a tile; `col` is a multiple of 64.
template <int Rows>
FLASH_HOST_DEVICE constexpr MnMajor<Rows> mn_major_at(unsigned tile, int col) {
  return {wgmma_operand<Major::mn>(tile + static_cast<unsigned>(col / 64 * Rows) * 128, Rows * 128, 1024)};
}

namespace fragment {

// ---- The accumulators of wgmma, fp32: [64, N] over the 128 threads of a warpgroup, N / 2 registers each --------------------
//
// Warp w has rows 16 w to 16 w + 15. Registers 4 i to 4 i + 3 are C of mma.m16n8 for columns 8 i to 8 i + 7. A in registers is
// A of mma.m16n8k16 for the warp's rows.

FLASH_HOST_DEVICE constexpr int wgmma_row(int thread, int reg) {
  return thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * (reg % 4 / 2);
}
FLASH_HOST_DEVICE constexpr int wgmma_col(int thread, int reg) { return reg / 4 * 8 + 2 * (thread % 4) + reg % 2; }

}  // namespace fragment
}  // namespace flash
