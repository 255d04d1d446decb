#include "common/attention/tensor_table.hpp"

#include <algorithm>
#include <cstring>

namespace flash {
namespace {

Extents lse_shape(const FullProblem& p) { return {p.B, p.H, p.Nq, 1}; }
Extents shape_of_bias(const FullProblem& p) { return bias_shape(p); }
Extents shape_of_its_gradient(const FullProblem& p) { return p.bias_gradient ? bias_shape(p) : Extents{}; }

constexpr ProblemTensor input(const char* name, const char* file, const char* copy, TensorRef Attention::*on_device,
                              HostTensor<float> Inputs::*input, int stream, std::optional<Role> role, bool backward = false) {
  return {name, file, copy, on_device, backward, role, role ? nullptr : shape_of_bias, input, stream};
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

}  // namespace flash
