#include "common/attention/variants.hpp"

#include "common/attention/option_table.hpp"
#include "common/attention/padding.hpp"
#include "common/attention/prediction.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace flash {
namespace {

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

/// What the problem has and the variant does not know.
Features unknown(const Variant& variant, const FullProblem& problem) { return features_of(problem) & ~variant.takes; }

/// What the problem lacks and the variant is made for.
Features lacking(const Variant& variant, const FullProblem& problem) { return variant.needs & ~features_of(problem); }

/// As on the command line: "--window, --softcap".
std::string list_of(Features features) { return joined(names_of(features), std::identity()); }

}  // namespace

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

std::string cannot_run(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits) {
  if (pass == Pass::backward && variant.backward == nullptr) return "it has no backward pass";
  if (std::string why = refusal_on(variant, problem, limits); !why.empty()) return why;
  if (variant.tiles != nullptr && variant.tiles(problem, pass, limits).empty()) return "none of its tiles fit this GPU";
  return "";
}

bool knows(const Variant& variant, const FullProblem& problem) {
  return (unknown(variant, problem) | lacking(variant, problem)) == Features::none;
}

}  // namespace flash
