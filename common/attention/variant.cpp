#include "common/attention/variant.hpp"

#include "common/attention/option_table.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

namespace flash {
namespace {

struct Step {
  int number;
  const Variant* variant;
  const char* file;
  Predict predict;
  const Variant* copy_rows;
};

struct Registry {
  std::vector<Step> steps;        // in the order of their numbers
  std::vector<Variant> variants;  // of the steps, as soon as someone asks
};

/// A function's static, so that it exists before the first registration, whichever source file is initialised first.
Registry& registry(Backend backend) {
  static std::array<Registry, 2> registries;
  return registries[backend == Backend::gpu ? 0 : 1];
}

/// fp32 but for workspaces that say otherwise, and the tensors of the problem that are in its dtype.
std::int64_t element_bytes(const Variant& variant, const FullProblem& problem, Pass pass, const std::string& name) {
  for (const char* tensor : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}) {
    if (name == tensor) return size_of(problem.dtype);
  }
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, pass)) {
    if (name == spec.name) return size_of(spec.dtype);
  }
  return 4;
}

/// The problem as the kernels see it: a wider d, and each tensor by itself.
FullProblem padded(const Variant& variant, FullProblem problem) {
  const int multiple = variant.row_multiple;
  if (problem.d % multiple == 0) return problem;
  problem.d = (problem.d + multiple - 1) / multiple * multiple;
  problem.layout = Layout::bhnd;
  return problem;
}

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

/// What launch_pass() adds to what the kernels do with the copies.
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

/// What the problem has and the variant does not know.
Features unknown(const Variant& variant, const FullProblem& problem) { return features_of(problem) & ~variant.takes; }

/// What the problem lacks and the variant is made for.
Features lacking(const Variant& variant, const FullProblem& problem) { return variant.needs & ~features_of(problem); }

/// As on the command line: "--window, --softcap".
std::string list_of(Features features) { return joined(names_of(features), std::identity()); }

}  // namespace

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
  const auto copy = [&](const TensorRef& from, const TensorRef& to) {
    Attention rows;
    rows.Q = from, rows.O = to;
    variant.copy_rows(rows);
  };
  for (const PaddedTensor& each : padded_tensors) {
    if (use_of(each, pass) == Use::none) continue;
    wide.*each.tensor = a.workspace(each.copy);
    if (use_of(each, pass) == Use::read) copy(a.*each.tensor, wide.*each.tensor);
  }
  start(wide);
  for (const PaddedTensor& each : padded_tensors) {
    if (use_of(each, pass) == Use::written) copy(wide.*each.tensor, a.*each.tensor);
  }
}

std::vector<WorkspaceSpec> workspaces_of(const Variant& variant, const FullProblem& problem, Pass pass) {
  std::vector<WorkspaceSpec> all = padded_copies(variant, problem, pass);
  if (variant.workspace == nullptr) return all;
  for (WorkspaceSpec& spec : variant.workspace(padded(variant, problem), pass)) {
    if ((spec.only_for & ~features_of(problem)) != Features::none) continue;
    spec.shape[3] += spec.per_sequence * problem.sequences.count();
    all.push_back(spec);
  }
  return all;
}

std::string refusal(const Variant& variant, const FullProblem& problem) {
  if (const std::string names = list_of(unknown(variant, problem)); !names.empty()) return "it does not know " + names;
  if (const std::string names = list_of(lacking(variant, problem)); !names.empty()) return "it is only for " + names;
  if (std::find(variant.dtypes.begin(), variant.dtypes.end(), problem.dtype) == variant.dtypes.end()) {
    return std::string("--dtype is ") + to_string(problem.dtype) + "; allowed: " + joined(variant.dtypes, to_string<Dtype>);
  }
  if (problem.d > variant.max_head_dim) {
    return "--head-dim is " + std::to_string(problem.d) + "; allowed: 1 to " + std::to_string(variant.max_head_dim);
  }
  if (const std::string why = variant.refuse == nullptr ? "" : variant.refuse(problem); !why.empty()) return why;
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, Pass::backward)) {
    if (spec.per_sequence > 0 && spec.shape[3] > std::numeric_limits<int>::max()) {
      return std::to_string(problem.sequences.count()) + " sequences of " + std::to_string(problem.Nq) +
             " queries; allowed: fewer, as offsets into " + spec.name + " have 32 bits";
    }
  }
  return "";
}

std::string refusal_on(const Variant& variant, const FullProblem& problem, const DeviceLimits& limits) {
  std::string why = refusal(variant, problem);
  return why.empty() && variant.refuse_on != nullptr ? variant.refuse_on(problem, limits) : why;
}

Prediction predict(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                   std::optional<Tiles> tiles) {
  if (variant.predict == nullptr) return {};
  TileChoice choice;
  if (variant.tiles != nullptr) {
    const std::vector<TileChoice> choices = variant.tiles(problem, pass, limits);
    const auto found =
        std::find_if(choices.begin(), choices.end(), [&](const TileChoice& c) { return !tiles || c.tiles == *tiles; });
    if (found == choices.end()) return {};
    choice = *found;
  }
  Prediction prediction = variant.predict(variant, padded(variant, problem), pass, choice, limits);
  add_copies(prediction, variant, problem, pass);
  for (auto& [name, moved] : prediction.tensors) {
    const std::int64_t bytes = element_bytes(variant, problem, pass, name);
    moved.read *= bytes, moved.written *= bytes;
  }
  std::erase_if(prediction.tensors, [](const auto& entry) { return entry.second.read + entry.second.written == 0; });
  return prediction;
}

const std::vector<Variant>& variants(Backend backend) {
  auto& [steps, variants] = registry(backend);
  if (variants.size() != steps.size()) {
    variants.clear();
    for (const Step& step : steps) {
      Variant& variant = variants.emplace_back(*step.variant);
      variant.file = step.file;
      variant.predict = step.predict;
      if (step.copy_rows != nullptr) variant.copy_rows = step.copy_rows->forward;
    }
  }
  return variants;
}

const Variant* find_variant(Backend backend, std::string_view name) {
  const std::vector<Variant>& all = variants(backend);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Variant& variant) { return variant.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string cannot_run(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits) {
  if (pass == Pass::backward && variant.backward == nullptr) return "it has no backward pass";
  if (std::string why = refusal_on(variant, problem, limits); !why.empty()) return why;
  if (variant.tiles != nullptr && variant.tiles(problem, pass, limits).empty()) return "none of its tiles fit this GPU";
  return "";
}

const Variant* fastest_variant(Backend backend, const FullProblem& problem, Pass pass, const DeviceLimits& limits) {
  const Variant* found = nullptr;
  for (const Variant& variant : variants(backend)) {
    if (variant.fastest == nullptr || !variant.fastest(problem, pass) || !cannot_run(variant, problem, pass, limits).empty())
      continue;
    if (found == nullptr || !found->only_if_fastest) found = &variant;
  }
  return found;
}

bool knows(const Variant& variant, const FullProblem& problem) {
  return (unknown(variant, problem) | lacking(variant, problem)) == Features::none;
}

const Variant* last_that_knows(Backend backend, const FullProblem& problem, Pass pass) {
  const std::vector<Variant>& all = variants(backend);
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const Variant& variant) {
    return knows(variant, problem) && (pass == Pass::forward || variant.backward != nullptr);
  });
  return found == all.rend() ? nullptr : &*found;
}

std::string name_clash(Backend backend) {
  const std::vector<Variant>& all = variants(backend);
  for (std::size_t second = 1; second < all.size(); ++second) {
    for (std::size_t first = 0; first < second; ++first) {
      if (std::string_view(all[first].name) != all[second].name) continue;
      return std::string(all[first].file) + " and " + all[second].file + " both have a variant '" + all[first].name +
             "'; change .name at the end of one of them";
    }
  }
  return "";
}

RegisterVariant::RegisterVariant(Backend backend, int number, const Variant& variant, const char* file, Predict predict,
                                 const Variant* copy_rows) {
  std::vector<Step>& steps = registry(backend).steps;
  const auto place = std::find_if(steps.begin(), steps.end(), [&](const Step& step) { return step.number > number; });
  steps.insert(place, {number, &variant, file, predict, copy_rows});
}

}  // namespace flash
