#include "common/attention/tensor_table.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace flash {
namespace {

using A = Attention;
using R = Results<float>;
using E = Results<double>;

constexpr ProblemTensor tensor_table[] = {
    {"Q", "q", "Q_padded", &A::Q, false, Role::q, &Inputs::Q, 0},
    {"K", "k", "K_padded", &A::K, false, Role::k, &Inputs::K, 1},
    {"V", "v", "V_padded", &A::V, false, Role::v, &Inputs::V, 2},
    {"bias", "bias", nullptr, &A::bias, false, Role::bias, &Inputs::bias, 4},
    {"O", "o", "O_padded", &A::O, false, Role::o, nullptr, 0, &R::O, &E::O},
    {"L", "lse", nullptr, &A::L, false, Role::lse, nullptr, 0, &R::L, &E::L},
    {"dO", "do", "dO_padded", &A::dO, true, Role::o, &Inputs::dO, 3},
    {"dQ", "dq", "dQ_padded", &A::dQ, true, Role::q, nullptr, 0, &R::dQ, &E::dQ},
    {"dK", "dk", "dK_padded", &A::dK, true, Role::k, nullptr, 0, &R::dK, &E::dK},
    {"dV", "dv", "dV_padded", &A::dV, true, Role::v, nullptr, 0, &R::dV, &E::dV},
    {"dBias", "dbias", nullptr, &A::dBias, true, Role::bias, nullptr, 0, &R::dBias, &E::dBias, &FullProblem::bias_gradient},
};

}  // namespace

std::span<const ProblemTensor> problem_tensors() { return tensor_table; }

bool ProblemTensor::exists(const FullProblem& p, Pass pass) const {
  return use(pass) != Use::none && shape(p)[3] != 0 && (only_if == nullptr || p.*only_if);
}

Use ProblemTensor::use(Pass pass) const {
  if (backward && pass == Pass::forward) return Use::none;
  return input != nullptr || (pass == Pass::backward && !backward) ? Use::read : Use::written;
}

TensorRef ProblemTensor::kernel_view(const FullProblem& p) const {
  TensorRef tensor{nullptr, name, dtype(p), shape(p), placement_of(p, role).stride};
  if (role == Role::bias && input != nullptr) tensor.shape = {p.B, p.H, p.bias == BiasKind::alibi ? 1 : p.Nq, tensor.shape[3]};
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
  if (role == Role::bias) return bias_shape(p);
  return {p.B, of_keys(role) ? p.Hkv : p.H, of_keys(role) ? p.Nk : p.Nq, role == Role::lse ? 1 : p.d};
}

Placement placement_of(const Problem& p, Role role) {
  const Extents shape = shape_of(p, role);
  if (is_dense(role)) return {role, elements_of(shape), 0, dense_tensor("", Dtype::fp32, shape).stride};
  const auto [B, heads, N, d] = shape;
  Placement placement{.home = role};
  std::int64_t packed = 1;  // tensors in the allocation
  if (p.layout == Layout::qkv && role != Role::o) placement.home = Role::q, packed = 3;
  if (p.layout == Layout::kv && of_keys(role)) placement.home = Role::k, packed = 2;
  placement.elements = packed * B * heads * N * d;
  placement.offset = (static_cast<int>(role) - static_cast<int>(placement.home)) * heads * d;
  const std::int64_t row = packed * heads * d;  // [B, N, packed, heads, d]
  placement.stride = p.layout == Layout::bhnd ? Extents{heads * N * d, N * d, d, 1} : Extents{N * row, d, row, 1};
  return placement;
}

Extents bias_shape(const Problem& p) {
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
