#include "common/attention/registry.hpp"
#include "common/attention/tensor_table.hpp"

namespace flash {

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
  each_tensor(wide, pass, [&](const ProblemTensor& each) {
    if (each.copy != nullptr) copies.push_back({each.copy, each.shape(wide), problem.dtype});
  });
  return copies;
}

void launch_pass(const Variant& variant, const Attention& a, Pass pass) {
  const auto start = pass == Pass::backward ? variant.backward : variant.forward;
  Attention wide = a;
  wide.problem = padded(variant, a.problem);
  if (wide.problem.d == a.problem.d) return start(a);
  const auto copy = [&](const ProblemTensor& each, Use use, const TensorRef& from, const TensorRef& to) {
    if (each.copy != nullptr && each.use(pass) == use) variant.copy_rows(from, to);
  };
  each_tensor(wide.problem, pass, [&](const ProblemTensor& each) {
    if (each.copy != nullptr) wide.*each.on_device = a.workspace(each.copy);
    copy(each, Use::read, a.*each.on_device, wide.*each.on_device);
  });
  start(wide);
  each_tensor(wide.problem, pass,
              [&](const ProblemTensor& each) { copy(each, Use::written, wide.*each.on_device, a.*each.on_device); });
}

void add_copies(Prediction& prediction, const Variant& variant, const FullProblem& problem, Pass pass) {
  const FullProblem wide = padded(variant, problem);
  if (wide.d == problem.d || prediction.tensors.empty()) return;
  prediction.sectors.reset();
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    if (each.copy == nullptr) return;
    Moved& copy = prediction.tensors[each.copy] = prediction.tensors[each.name];
    const std::int64_t rows = elements_of(each.shape(problem)) / problem.d;
    const bool read = each.use(pass) == Use::read;
    prediction.tensors[each.name] = read ? Moved{rows * problem.d, 0} : Moved{0, rows * problem.d};
    (read ? copy.written : copy.read) += rows * (read ? wide.d : problem.d);
  });
}

}  // namespace flash
