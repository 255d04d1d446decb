#include "common/attention/padding.hpp"

#include "common/attention/prediction.hpp"

namespace flash {
namespace {

enum class Use { none, read, written };
struct PaddedTensor {
  const char *name, *copy;
  TensorRef Attention::*tensor;
  Role role;
  Use forward, backward;
};
constexpr PaddedTensor padded_tensors[] = {
    {"Q", "Q_padded", &Attention::Q, Role::q, Use::read, Use::read},
    {"K", "K_padded", &Attention::K, Role::k, Use::read, Use::read},
    {"V", "V_padded", &Attention::V, Role::v, Use::read, Use::read},
    {"O", "O_padded", &Attention::O, Role::o, Use::written, Use::read},
    {"dO", "dO_padded", &Attention::dO, Role::o, Use::none, Use::read},
    {"dQ", "dQ_padded", &Attention::dQ, Role::q, Use::none, Use::written},
    {"dK", "dK_padded", &Attention::dK, Role::k, Use::none, Use::written},
    {"dV", "dV_padded", &Attention::dV, Role::v, Use::none, Use::written},
};

Use use_of(const PaddedTensor& tensor, Pass pass) { return pass == Pass::backward ? tensor.backward : tensor.forward; }

}  // namespace

FullProblem padded(const Variant& variant, FullProblem problem) {
  const int multiple = variant.row_multiple;
  if (problem.d % multiple == 0) return problem;
  problem.d = (problem.d + multiple - 1) / multiple * multiple;
  problem.layout = Layout::bhnd;
  return problem;
}

std::vector<WorkspaceSpec> padded_copies(const Variant& variant, const FullProblem& problem, Pass pass) {
  std::vector<WorkspaceSpec> copies;
  const FullProblem wide = padded(variant, problem);
  if (wide.d == problem.d) return copies;
  for (const PaddedTensor& each : padded_tensors) {
    if (pass == Pass::backward || each.forward != Use::none)
      copies.push_back({each.copy, shape_of(wide, each.role), problem.dtype});
  }
  return copies;
}

void launch_pass(const Variant& variant, const Attention& a, Pass pass) {
  const auto start = pass == Pass::backward ? variant.backward : variant.forward;
  Attention wide = a;
  wide.problem = padded(variant, a.problem);
  if (wide.problem.d == a.problem.d) return start(a);
  for (const PaddedTensor& each : padded_tensors) {
    if (use_of(each, pass) == Use::none) continue;
    wide.*each.tensor = a.workspace(each.copy);
    if (use_of(each, pass) == Use::read) variant.copy_rows(a.*each.tensor, wide.*each.tensor);
  }
  start(wide);
  for (const PaddedTensor& each : padded_tensors) {
    if (use_of(each, pass) == Use::written) variant.copy_rows(wide.*each.tensor, a.*each.tensor);
  }
}

void add_copies(Prediction& prediction, const Variant& variant, const FullProblem& problem, Pass pass) {
  const FullProblem wide = padded(variant, problem);
  if (wide.d == problem.d || prediction.tensors.empty()) return;
  prediction.sectors.reset();
  for (const PaddedTensor& each : padded_tensors) {
    const Use use = use_of(each, pass);
    if (use == Use::none) continue;
    Moved& copy = prediction.tensors[each.copy] = prediction.tensors[each.name];
    const auto [B, heads, rows, d] = shape_of(problem, each.role);
    const std::int64_t all = B * heads * rows;
    prediction.tensors[each.name] = use == Use::read ? Moved{all * d, 0} : Moved{0, all * d};
    if (use == Use::read) {
      copy.written += all * wide.d;
    } else {
      copy.read += all * d;
    }
  }
}

}  // namespace flash
