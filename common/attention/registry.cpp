#include "common/attention/registry.hpp"

#include <algorithm>
#include <array>
#include <map>

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

std::string name_clash(Backend backend) {
  std::map<std::string_view, std::string> files;
  for (const Variant& variant : variants(backend)) {
    const auto [first, is_new] = files.try_emplace(variant.name, variant.file);
    if (!is_new)
      return first->second + " and " + variant.file + " both have a variant '" + variant.name +
             "'; change .name at the end of one of them";
  }
  return "";
}

RegisterVariant::RegisterVariant(Backend backend, int number, const Variant& variant, const char* file, Predict predict,
                                 CopyRows copy_rows) {
  std::vector<Step>& steps = registry(backend).steps;
  const auto place = std::find_if(steps.begin(), steps.end(), [&](const Step& step) { return step.number > number; });
  steps.insert(place, {number, &variant, file, predict, copy_rows});
}

}  // namespace flash
