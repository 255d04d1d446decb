// Where the tensors of a problem lie: their extents, and their strides under its layout.
#pragma once

#include "common/attention/tensor.hpp"

namespace flash {

/// The tensors that may be packed with others in one allocation.
enum class Role { q, k, v, o };

/// The place of one tensor in its allocation: offset and strides in elements.
struct Placement {
  std::int64_t offset = 0;
  std::array<std::int64_t, 4> stride{};
};

/// Extents [B, H or Hkv, Nq or Nk, d] of a tensor.
std::array<std::int64_t, 4> shape_of(const Problem&, Role);

/// Placement of a tensor under problem.layout:
///   bhnd: (B,H,N,d)    bnhd: (B,N,H,d)    qkv: Q, K, V packed (B,N,3,H,d)    kv: K, V packed (B,N,2,Hkv,d), Q (B,N,H,d)
/// O follows Q's order of axes and is never packed. Gradients lie like the tensors they belong to.
Placement placement_of(const Problem&, Role);

/// Elements of the allocation that holds a tensor of this role, packed neighbours included.
std::int64_t allocation_elements(const Problem&, Role);

/// Extents of the bias tensor; all zeros without one.
std::array<std::int64_t, 4> bias_shape(const Problem&);

/// Their product.
std::int64_t bias_elements(const Problem&);

/// Strides of a dense row-major tensor; an extent of 1 gets stride 0, so that it broadcasts.
std::array<std::int64_t, 4> dense_strides(const std::array<std::int64_t, 4>& shape);

}  // namespace flash
