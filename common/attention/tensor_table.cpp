#include "common/attention/tensor_table.hpp"

#include <algorithm>
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

Extents lse_shape(const FullProblem& p) { return {p.B, p.H, p.Nq, 1}; }
Extents shape_of_its_gradient(const FullProblem& p) { return p.bias_gradient ? bias_shape(p) : Extents{}; }

constexpr ProblemTensor input(const char* name, const char* file, const char* copy, TensorRef Attention::*on_device,
                              HostTensor<float> Inputs::*input, int stream, std::optional<Role> role, bool backward = false) {
  return {name, file, copy, on_device, backward, role, role ? nullptr : bias_shape, input, stream};
}

using A = Attention;
using R = Results<float>;
using E = Results<double>;

constexpr ProblemTensor tensor_table[] = {
    input("Q", "q", "Q_padded", &A::Q, &Inputs::Q, 0, Role::q),
    input("K", "k", "K_padded", &A::K, &Inputs::K, 1, Role::k),
    input("V", "v", "V_padded", &A::V, &Inputs::V, 2, Role::v),
    input("bias", "bias", nullptr, &A::bias, &Inputs::bias, 4, std::nullopt),
    {"O", "o", "O_padded", &A::O, false, Role::o, nullptr, nullptr, 0, &R::O, &E::O},
    {"L", "lse", nullptr, &A::L, false, std::nullopt, lse_shape, nullptr, 0, &R::L, &E::L},
    input("dO", "do", "dO_padded", &A::dO, &Inputs::dO, 3, Role::o, true),
    {"dQ", "dq", "dQ_padded", &A::dQ, true, Role::q, nullptr, nullptr, 0, &R::dQ, &E::dQ},
    {"dK", "dk", "dK_padded", &A::dK, true, Role::k, nullptr, nullptr, 0, &R::dK, &E::dK},
    {"dV", "dv", "dV_padded", &A::dV, true, Role::v, nullptr, nullptr, 0, &R::dV, &E::dV},
    {"dBias", "dbias", nullptr, &A::dBias, true, std::nullopt, shape_of_its_gradient, nullptr, 0, &R::dBias, &E::dBias},
};

}  // namespace

std::span<const ProblemTensor> problem_tensors() { return tensor_table; }

const ProblemTensor* find_tensor(std::string_view name) {
  const auto found =
      std::ranges::find_if(tensor_table, [&](const ProblemTensor& t) { return t.name == name || t.file == name; });
  return found == std::end(tensor_table) ? nullptr : found;
}

Extents ProblemTensor::shape(const FullProblem& p) const { return role ? shape_of(p, *role) : dense_shape(p); }

bool ProblemTensor::exists(const FullProblem& p, Pass pass) const { return use(pass) != Use::none && shape(p)[3] != 0; }

Use ProblemTensor::use(Pass pass) const {
  if (backward && pass == Pass::forward) return Use::none;
  return input != nullptr || (pass == Pass::backward && !backward) ? Use::read : Use::written;
}

TensorRef ProblemTensor::seen(const FullProblem& p) const {
  const Extents own = shape(p);
  TensorRef tensor{nullptr, name, dtype(p), own, role ? placement_of(p, *role).stride : dense_strides(own)};
  if (input == nullptr || role || own[3] == 0) return tensor;
  tensor.shape = {p.B, p.H, p.bias == BiasKind::alibi ? 1 : p.Nq, own[3]};
  return tensor;
}

bool identical(const Results<float>& a, const Results<float>& b) {
  return std::ranges::all_of(tensor_table, [&](const ProblemTensor& t) {
    if (t.result == nullptr) return true;
    const HostTensor<float>&x = a.*t.result, &y = b.*t.result;
    if (x.empty() || y.empty()) return x.empty() && y.empty();  // memcmp takes no null pointer
    return x.shape == y.shape && std::memcmp(x.values.data(), y.values.data(), x.values.size() * sizeof(float)) == 0;
  });
}

const TensorRef& Attention::workspace(const char* name) const {
  for (const TensorRef& tensor : workspaces) {
    if (std::strcmp(tensor.name, name) == 0) return tensor;
  }
  throw std::logic_error(std::string("no workspace '") + name + "': the variant's workspace() does not declare it");
}

Extents shape_of(const Problem& p, Role role) {
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

Extents bias_shape(const FullProblem& p) {
  if (p.bias == BiasKind::none) return {};
  return {p.bias_per_batch ? p.B : 1, p.bias_per_head ? p.H : 1, p.bias == BiasKind::matrix ? p.Nq : 1,
          p.bias == BiasKind::alibi ? 1 : p.Nk};
}

Extents dense_strides(const Extents& shape) {
  Extents stride{};
  std::int64_t step = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    stride[axis] = shape[axis] == 1 ? 0 : step;
    step *= shape[axis];
  }
  return stride;
}

}  // namespace flash
