#include "common/attention/tensor_table.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace flash {
namespace {

Extents lse_shape(const FullProblem& p) { return {p.B, p.H, p.Nq, 1}; }
Extents shape_of_its_gradient(const FullProblem& p) { return p.bias_gradient ? bias_shape(p) : Extents{}; }

constexpr ProblemTensor input(const char* name, const char* file, const char* copy, TensorRef Attention::*on_device,
                              HostTensor<float> Inputs::*input, int random_stream, std::optional<Role> role,
                              bool backward = false) {
  return {name, file, copy, on_device, backward, role, role ? nullptr : bias_shape, input, random_stream};
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

Extents ProblemTensor::shape(const FullProblem& p) const { return role ? shape_of(p, *role) : dense_shape(p); }

bool ProblemTensor::exists(const FullProblem& p, Pass pass) const { return use(pass) != Use::none && shape(p)[3] != 0; }

Use ProblemTensor::use(Pass pass) const {
  if (backward && pass == Pass::forward) return Use::none;
  return input != nullptr || (pass == Pass::backward && !backward) ? Use::read : Use::written;
}

TensorRef ProblemTensor::kernel_view(const FullProblem& p) const {
  const Extents own = shape(p);
  TensorRef tensor = dense_tensor(name, dtype(p), own);
  if (role) tensor.stride = placement_of(p, *role).stride;
  if (input != nullptr && !role && own[3] != 0) tensor.shape = {p.B, p.H, p.bias == BiasKind::alibi ? 1 : p.Nq, own[3]};
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
  for (const TensorRef& tensor : workspaces)
    if (std::strcmp(tensor.name, name) == 0) return tensor;
  throw std::logic_error(std::string("no workspace '") + name + "': the variant's workspace() does not declare it");
}

Extents shape_of(const Problem& p, Role role) {
  const bool query_side = role == Role::q || role == Role::o;
  return {p.B, query_side ? p.H : p.Hkv, query_side ? p.Nq : p.Nk, p.d};
}

Placement placement_of(const Problem& p, Role role) {
  const auto [B, heads, N, d] = shape_of(p, role);
  Placement placement{.home = role};
  std::int64_t packed = 1;  // tensors in the allocation
  if (p.layout == Layout::qkv && role != Role::o) placement.home = Role::q, packed = 3;
  if (p.layout == Layout::kv && (role == Role::k || role == Role::v)) placement.home = Role::k, packed = 2;
  placement.elements = packed * B * heads * N * d;
  placement.offset = (static_cast<int>(role) - static_cast<int>(placement.home)) * heads * d;
  const std::int64_t row = packed * heads * d;  // [B, N, packed, heads, d]
  placement.stride = p.layout == Layout::bhnd ? Extents{heads * N * d, N * d, d, 1} : Extents{N * row, d, row, 1};
  return placement;
}

Extents bias_shape(const FullProblem& p) {
  if (p.bias == BiasKind::none) return {};
  return {p.bias_per_batch ? p.B : 1, p.bias_per_head ? p.H : 1, p.bias == BiasKind::matrix ? p.Nq : 1,
          p.bias == BiasKind::alibi ? 1 : p.Nk};
}

TensorRef dense_tensor(const char* name, Dtype dtype, const Extents& shape) {
  TensorRef tensor{nullptr, name, dtype, shape, {}};
  std::int64_t step = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    tensor.stride[axis] = shape[axis] == 1 ? 0 : step;
    step *= shape[axis];
  }
  return tensor;
}

}  // namespace flash
