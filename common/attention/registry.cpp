#include "common/attention/registry.hpp"

#include "common/attention/option_table.hpp"
#include "common/attention/tensor_table.hpp"

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
  CopyRows copy_rows;
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

/// Of a tensor of the problem or a workspace; fp32 of any other.
std::int64_t element_bytes(const Variant& variant, const FullProblem& problem, Pass pass, const std::string& name) {
  if (const ProblemTensor* const tensor = find_tensor(name)) return size_of(tensor->dtype(problem));
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, pass)) {
    if (name == spec.name) return size_of(spec.dtype);
  }
  return 4;
}

}  // namespace

const std::vector<Variant>& variants(Backend backend) {
  auto& [steps, variants] = registry(backend);
  if (variants.size() != steps.size()) {
    variants.clear();
    for (const Step& step : steps) {
      Variant& variant = variants.emplace_back(*step.variant);
      variant.file = step.file;
      variant.predict = step.predict;
      variant.copy_rows = step.copy_rows;
    }
  }
  return variants;
}

const Variant* find_variant(Backend backend, std::string_view name) {
  const std::vector<Variant>& all = variants(backend);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Variant& variant) { return variant.name == name; });
  return found == all.end() ? nullptr : &*found;
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

const Variant* best_variant(Backend backend, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                            bool same_bits) {
  const bool in_order = same_bits && pass == Pass::backward, on_gpu = backend == Backend::gpu;
  const Variant* const fastest = on_gpu ? fastest_variant(backend, problem, pass, limits) : nullptr;
  if (fastest != nullptr && !(in_order && fastest->atomic_dQ)) return fastest;
  const std::vector<Variant>& all = variants(backend);
  for (const bool in_turns : {false, true}) {
    if (in_turns && fastest != nullptr && fastest->takes_turns) return fastest;
    for (const bool special : {on_gpu && in_order, !(on_gpu && in_order)}) {
      const auto found = std::find_if(all.rbegin(), all.rend(), [&](const Variant& variant) {
        return variant.only_if_fastest == special && (!in_order || !variant.atomic_dQ || (in_turns && variant.takes_turns)) &&
               cannot_run(variant, problem, pass, limits).empty();
      });
      if (found != all.rend()) return &*found;
    }
  }
  return nullptr;
}

std::string name_clash(Backend backend) {
  for (const Variant& variant : variants(backend)) {
    const Variant* const first = find_variant(backend, variant.name);
    if (first != &variant)
      return std::string(first->file) + " and " + variant.file + " both have a variant '" + variant.name +
             "'; change .name at the end of one of them";
  }
  return "";
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
  if (const std::string names = names_of(features_of(problem) & ~variant.takes); !names.empty())
    return "it does not know " + names;
  if (const std::string names = names_of(variant.needs & ~features_of(problem)); !names.empty())
    return "it is only for " + names;
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

std::string cannot_run(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits) {
  if (pass == Pass::backward && variant.backward == nullptr) return "it has no backward pass";
  if (std::string why = refusal_on(variant, problem, limits); !why.empty()) return why;
  if (variant.tiles != nullptr && variant.tiles(problem, pass, limits).empty()) return "none of its tiles fit this GPU";
  return "";
}

RegisterVariant::RegisterVariant(Backend backend, int number, const Variant& variant, const char* file, Predict predict,
                                 CopyRows copy_rows) {
  std::vector<Step>& steps = registry(backend).steps;
  const auto place = std::find_if(steps.begin(), steps.end(), [&](const Step& step) { return step.number > number; });
  steps.insert(place, {number, &variant, file, predict, copy_rows});
}

}  // namespace flash
