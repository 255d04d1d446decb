// Ownership of registers: the elements of a tile that each lane of a warp has in its registers
// (docs/reference/mma_fragments.md), and where a swizzled tile keeps its chunks (docs/reference/swizzles.md). Kernels, the
// simulator and the pictures all use these functions.
//
// A register holds two 16-bit elements: `which` 0 is its lower half. Lane (g, t) of a fragment is (lane / 4, lane % 4).
#pragma once

#include "common/machine/types.hpp"

namespace flash {
namespace fragment {

// ---- A, 16-bit: [16, 16] in registers 0..3; [16, 8] in registers 0 and 1 ---------------------------------------------------

FLASH_HOST_DEVICE constexpr int a_row(int lane, int reg) { return lane / 4 + 8 * (reg % 2); }
FLASH_HOST_DEVICE constexpr int a_col(int lane, int reg, int which = 0) { return 2 * (lane % 4) + which + 8 * (reg / 2); }

// ---- B, 16-bit: [16, 8] in registers 0 and 1; [8, 8] in register 0. B^T has the layout of an 8-row half of A ---------------

FLASH_HOST_DEVICE constexpr int b_row(int lane, int reg, int which = 0) { return 2 * (lane % 4) + which + 8 * reg; }
FLASH_HOST_DEVICE constexpr int b_col(int lane) { return lane / 4; }

// ---- C and D, fp32: [16, 8] in registers 0..3, one element each ------------------------------------------------------------

FLASH_HOST_DEVICE constexpr int c_row(int lane, int reg) { return lane / 4 + 8 * (reg / 2); }
FLASH_HOST_DEVICE constexpr int c_col(int lane, int reg) { return 2 * (lane % 4) + reg % 2; }

// ---- An 8 x 8 matrix of 16-bit elements, as ldmatrix delivers it to a register; lanes point to its rows --------------------

FLASH_HOST_DEVICE constexpr int ldmatrix_row(int lane) { return lane / 4; }
FLASH_HOST_DEVICE constexpr int ldmatrix_col(int lane, int which) { return 2 * (lane % 4) + which; }
FLASH_HOST_DEVICE constexpr int ldmatrix_trans_row(int lane, int which) { return 2 * (lane % 4) + which; }
FLASH_HOST_DEVICE constexpr int ldmatrix_trans_col(int lane) { return lane / 4; }

}  // namespace fragment

// ---- The XOR swizzle -------------------------------------------------------------------------------------------------------
//
// A tile of 16-bit elements in shared memory has rows of `width` elements without padding. A chunk is 8 elements, 16 bytes: a
// lane points ldmatrix to one, or copies one with cp.async. Eight chunks that are accessed together must hit all 8 groups of 4
// banks. The swizzle puts chunk c of row r into place swizzled_chunk(width, r, c) of the row:
//   rows of 128 bytes or a multiple: all rows begin in bank 0, so that the place depends on the row modulo 8;
//   rows of 64 or 192 bytes: rows begin in banks 0 and 16 alternately, so that four places within 64 bytes suffice;
//   rows of 32 bytes: four rows in turn begin in banks 0, 8, 16 and 24, so that both places within 32 bytes suffice.

FLASH_HOST_DEVICE constexpr int swizzled_chunk(int width, int row, int chunk) {
  return width % 64 == 0 ? chunk ^ row % 8 : width % 32 == 0 ? chunk ^ row / 2 % 4 : chunk ^ row / 4 % 2;
}

/// The place of element `col` within row `row`.
FLASH_HOST_DEVICE constexpr int swizzled_col(int width, int row, int col) {
  return 8 * swizzled_chunk(width, row, col / 8) + col % 8;
}

}  // namespace flash
