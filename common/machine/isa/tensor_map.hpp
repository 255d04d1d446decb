// The units that the Tensor Memory Accelerator (TMA) copies: boxes of a tensor [B, H, N, d] of 16-bit elements, each with 64
// columns of some rows of one head.
#pragma once

#include "common/machine/types.hpp"

#include <string>

namespace flash {

/// Columns of a box: 128 bytes, as wide as the swizzle.
constexpr int tensor_map_cols = 64;

/// The reason why no map of this tensor can be made, "" if one can: the TMA wants a base and strides that are multiples of 16
/// bytes.
std::string why_no_tensor_map(const TensorRef&);

/// Strides in bytes of N, H, B, as a map has them. An extent of 1 gets the stride of a dense tensor: its own is never used.
std::array<std::int64_t, 3> tensor_map_strides(const TensorRef&);

/// Throws std::logic_error if no map with boxes of `box_rows` rows can be made of this tensor: a variant must refuse it before.
void require_tensor_map(const TensorRef&, int box_rows);

}  // namespace flash
