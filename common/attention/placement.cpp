#include "common/attention/placement.hpp"

#include <cstring>
#include <stdexcept>

namespace flash {
namespace {

/// Tensors in one allocation, and this one's number among them.
struct Packing {
  std::int64_t count = 1, position = 0;
};

Packing packing_of(Layout layout, Role role) {
  if (layout == Layout::qkv && role != Role::o) return {3, role == Role::q ? 0 : role == Role::k ? 1 : 2};
  if (layout == Layout::kv && (role == Role::k || role == Role::v)) return {2, role == Role::k ? 0 : 1};
  return {};
}

}  // namespace

const TensorRef& Attention::workspace(const char* name) const {
  for (const TensorRef& tensor : workspaces) {
    if (std::strcmp(tensor.name, name) == 0) return tensor;
  }
  throw std::logic_error(std::string("no workspace '") + name + "': the variant's workspace() does not declare it");
}

std::array<std::int64_t, 4> shape_of(const Problem& p, Role role) {
  const bool query_side = role == Role::q || role == Role::o;
  return {p.B, query_side ? p.H : p.Hkv, query_side ? p.Nq : p.Nk, p.d};
}

Placement placement_of(const Problem& p, Role role) {
  const auto [B, heads, N, d] = shape_of(p, role);
  if (p.layout == Layout::bhnd) return {0, {heads * N * d, N * d, d, 1}};
  // [B, N, count, heads, d]; (B,N,H,d) is the case count = 1.
  const Packing packing = packing_of(p.layout, role);
  const std::int64_t row = packing.count * heads * d;
  return {packing.position * heads * d, {N * row, d, row, 1}};
}

std::int64_t allocation_elements(const Problem& p, Role role) {
  const auto [B, heads, N, d] = shape_of(p, role);
  return packing_of(p.layout, role).count * B * heads * N * d;
}

std::array<std::int64_t, 4> bias_shape(const Problem& p) {
  const std::int64_t batches = p.bias_per_batch ? p.B : 1;
  const std::int64_t heads = p.bias_per_head ? p.H : 1;
  switch (p.bias) {
    case BiasKind::none:
      break;
    case BiasKind::vector:
      return {batches, heads, 1, p.Nk};
    case BiasKind::matrix:
      return {batches, heads, p.Nq, p.Nk};
    case BiasKind::alibi:
      return {batches, heads, 1, 1};
  }
  return {};
}

std::int64_t bias_elements(const Problem& p) {
  const auto shape = bias_shape(p);
  return shape[0] * shape[1] * shape[2] * shape[3];
}

std::array<std::int64_t, 4> dense_strides(const std::array<std::int64_t, 4>& shape) {
  std::array<std::int64_t, 4> stride{};
  std::int64_t step = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    stride[axis] = shape[axis] == 1 ? 0 : step;
    step *= shape[axis];
  }
  return stride;
}

}  // namespace flash
