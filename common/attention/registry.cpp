#include "common/attention/registry.hpp"

#include "common/machine/error.hpp"

#include <algorithm>
#include <compare>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>

namespace flash {
namespace {

/// A function's static, so that it exists before any source file registers variants.
std::vector<Registration>& registered(Backend backend) {
  static std::map<Backend, std::vector<Registration>> all;
  return all[backend];
}

/// The problem as kernels see it on padded copies: a wider d, and each tensor by itself; the same if its rows fit.
FullProblem padded(const Variant& variant, FullProblem problem) {
  const int multiple = variant.row_multiple, d = (problem.d + multiple - 1) / multiple * multiple;
  if (d != problem.d) problem.layout = Layout::bhnd;
  problem.d = d;
  return problem;
}

/// Adds the traffic of the copies to that of the kernels, in elements.
void add_copies(Prediction& prediction, const Variant& variant, const FullProblem& problem, Pass pass) {
  const FullProblem wide = padded(variant, problem);
  if (wide.d == problem.d || prediction.tensors.empty()) return;
  prediction.sectors.reset();
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    if (each.copy == nullptr) return;
    MemoryTraffic& copy = prediction.tensors[each.copy] = prediction.tensors[each.name];
    const std::int64_t rows = elements_of(each.shape(problem)) / problem.d;
    const bool read = each.use(pass) == Use::read;
    prediction.tensors[each.name] = read ? MemoryTraffic{rows * problem.d, 0} : MemoryTraffic{0, rows * problem.d};
    (read ? copy.written : copy.read) += rows * (read ? wide.d : problem.d);
  });
}

bool has_pass(const Variant& variant, Pass pass) { return pass == Pass::forward || variant.backward != nullptr; }

/// The greatest runs where nobody names one.
struct Preference {
  bool adds_in_order, is_fastest, has_own_pass, is_for_this_use;
  auto operator<=>(const Preference&) const = default;
};

/// The one that runs where nobody names one; null: none can.
const Variant* best_variant(Backend backend, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                            bool deterministic) {
  const bool in_order = deterministic && pass == Pass::backward, on_gpu = backend == Backend::gpu;
  const Variant* const fastest = on_gpu ? fastest_variant(backend, problem, pass, limits) : nullptr;
  const Variant* best = nullptr;
  Preference highest{};
  for (const Variant& v : variants(backend)) {
    if ((in_order && v.atomic_dQ && !v.by_launches) || !why_it_cannot_run(v, problem, pass, limits).empty()) continue;
    const Preference preference{!(in_order && v.atomic_dQ), &v == fastest, has_own_pass(v, pass),
                                v.in_more == (on_gpu && in_order)};
    if (best == nullptr || preference >= highest) best = &v, highest = preference;
  }
  return best;
}

/// Which other one of the stage takes what this one refuses, or which other stage; "" if it is not known.
std::string who_takes(const Variant& variant, const FullProblem& p, Pass pass, Backend backend, const DeviceLimits& limits) {
  const Variant* const best = best_variant(backend, p, pass, limits, /*deterministic=*/false);
  if (best != nullptr) return std::string("; variant ") + best->name + " takes it";
  const auto only = [has = features_of(p)](Features known) { return (has & ~known) == Features::none; };
  const bool takes_dtype = std::ranges::find(variant.dtypes, p.dtype) != variant.dtypes.end();
  if (takes_dtype && p.d <= variant.max_head_dim && only(variant.takes)) return "";  // it refuses for a reason of its own
  if (p.d > 128) return only(plain_problem) ? "; stage 08 takes it in fp16 and bf16" : "";
  if (only(general_problem | usual_options))
    return p.dtype == Dtype::fp32 ? "; stage 07 takes it in fp32" : "; stage 08 takes it in fp16 and bf16";
  return only(general_problem | Features::lorentz | Features::centroid) ? "; stage 07 takes it in fp32" : "";
}

/// Gives a step without a forward pass the one of the first of `steps` that knows its problems; none knows of a gradient of the bias.
void borrow_forward_pass(Variant& step, const std::vector<const Variant*>& steps) {
  const Features known = step.takes & ~Features::bias_gradient;
  const auto lender = std::ranges::find_if(steps, [&](auto* other) { return (known & ~other->takes) == Features::none; });
  if (lender == steps.end())
    throw std::logic_error(std::string(step.file) + " has no forward pass, and no step after FORWARD knows its problems");
  step.forward_step = *lender;
  step.forward = (*lender)->forward;
  if (step.tiles == nullptr) return;
  step.tiles = [own = step.tiles, lent = (*lender)->tiles](const Problem& p, Pass pass, const DeviceLimits& limits) {
    return (pass == Pass::forward ? lent : own)(p, pass, limits);
  };
}

}  // namespace

const std::vector<Variant>& variants(Backend backend) {
  static std::mutex mutex;  // perhaps several threads ask first
  const std::lock_guard lock(mutex);
  static std::map<Backend, std::vector<Variant>> all;
  std::vector<Variant>& variants = all[backend];
  if (variants.size() == registered(backend).size()) return variants;
  variants.clear();
  for (const Registration& each : registered(backend)) {
    const auto same = std::ranges::find(variants, std::string_view(each.variant->name), &Variant::name);
    if (same != variants.end())
      throw UsageError(std::string(same->file) + " and " + each.file + " both have a variant '" + same->name +
                       "'; change .name at the end of one of them");
    Variant& variant = variants.emplace_back(*each.variant);
    variant.file = each.file;
    variant.in_more = std::filesystem::path(each.file).parent_path().filename() == "more";
    variant.predict = each.predict;
    variant.copy_rows = each.copy_rows;
    if (variant.forward == nullptr) borrow_forward_pass(variant, each.forward);
  }
  return variants;
}

const Variant& variant_named(Backend backend, std::string_view name) {
  const std::vector<Variant>& all = variants(backend);
  const auto found = std::ranges::find(all, name, &Variant::name);
  if (found != all.end()) return *found;
  throw UsageError("there is no variant '" + std::string(name) +
                   "'; there are: " + joined(all, [](const Variant& variant) { return variant.name; }));
}

const Variant* fastest_variant(Backend backend, const FullProblem& problem, Pass pass, const DeviceLimits& limits) {
  const Variant* found = nullptr;
  for (const Variant& v : variants(backend)) {
    if ((found != nullptr && found->in_more) || v.fastest == nullptr || !v.fastest(problem, pass)) continue;
    if (why_it_cannot_run(v, problem, pass, limits).empty()) found = &v;
  }
  return found;
}

const Variant& choose_variant(Backend backend, const std::string& name, const FullProblem& problem, Pass pass,
                              const DeviceLimits& limits, bool deterministic) {
  const std::vector<Variant>& all = variants(backend);
  const Variant* chosen =
      name.empty() ? best_variant(backend, problem, pass, limits, deterministic) : &variant_named(backend, name);
  if (chosen == nullptr) {  // the last step of the ladder says why not
    const auto usual =
        std::find_if(all.rbegin(), all.rend(), [&](const Variant& v) { return !v.in_more && has_pass(v, pass); });
    chosen = usual != all.rend() ? &*usual : &all.back();
  }
  const std::string refuses = std::string("variant ") + chosen->name + " refuses this problem: ";
  const std::string why = why_it_cannot_run(*chosen, problem, pass, limits);
  if (why.empty() && pass == Pass::backward && deterministic && chosen->atomic_dQ && !chosen->by_launches)
    throw UsageError(refuses + "its dQ differs between runs, and deterministic is set");
  if (why.empty()) return *chosen;
  if (has_pass(*chosen, pass) && refusal(*chosen, problem).empty()) throw DeviceError(refuses + why);
  const bool says_who = why.find("--variant") != std::string::npos;
  throw UsageError(refuses + why + (says_who ? "" : who_takes(*chosen, problem, pass, backend, limits)));
}

bool has_own_pass(const Variant& variant, Pass pass) {
  return pass == Pass::forward ? variant.forward_step == nullptr : variant.backward != nullptr;
}

std::vector<WorkspaceSpec> workspaces_of(const Variant& variant, const FullProblem& problem, Pass pass) {
  std::vector<WorkspaceSpec> all;
  const FullProblem wide = padded(variant, problem);
  each_tensor(wide, pass, [&](const ProblemTensor& each) {
    if (each.copy != nullptr && wide.d != problem.d) all.push_back({each.copy, each.shape(wide), problem.dtype});
  });
  for (const Variant* const step : {variant.forward_step, &variant}) {
    if (step == nullptr || step->workspace == nullptr) continue;
    for (WorkspaceSpec& spec : step->workspace(wide, step == &variant ? pass : Pass::forward)) {
      if ((spec.only_for & ~features_of(problem)) != Features::none) continue;
      spec.shape[3] += spec.per_sequence * problem.sequences.count();
      all.push_back(spec);
    }
  }
  return all;
}

std::string to_string(const Tiles& tiles) { return std::to_string(tiles.Br) + "," + std::to_string(tiles.Bc); }

PassPlan plan_pass(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                   std::optional<Tiles> tiles) {
  PassPlan plan{{}, workspaces_of(variant, problem, pass), {}, {}};
  const auto& [queries, keys] = problem.sequences;
  for (std::size_t s = 0; s < queries.size(); ++s) plan.offsets.insert(plan.offsets.end(), {queries[s], keys[s]});
  const std::string given = tiles ? "--tiles is " + to_string(*tiles) : "";
  if (variant.tiles == nullptr && tiles)
    throw UsageError(given + ", but variant " + variant.name + " has no tile sizes to choose from; --list shows which have");
  if (variant.tiles == nullptr) return plan;
  const std::vector<TileChoice> choices = variant.tiles(problem, pass, limits);
  if (choices.empty())
    throw DeviceError(std::string("variant ") + variant.name + ": " + why_it_cannot_run(variant, problem, pass, limits));
  const auto chosen = tiles ? std::ranges::find(choices, *tiles, &TileChoice::tiles) : choices.begin();
  if (chosen == choices.end()) {
    const auto text = [](const TileChoice& choice) { return to_string(choice.tiles); };
    throw UsageError(given + "; allowed for " + variant.name + " here: " + joined(choices, text, "  "));
  }
  plan.choice = *chosen;
  plan.order = longest_first(problem, pass, chosen->tiles);
  return plan;
}

std::pair<int, std::string> code_and_message(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {3, "not enough main memory for this problem"};
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return {2, error.what()};
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return {3, error.what()};
  if (const auto* broken = dynamic_cast<const KernelError*>(&error))
    return {1, broken->what() + (" [" + std::string(broken->rule) + "]")};
  return {1, std::string("internal error: ") + error.what()};
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

std::string refusal(const Variant& variant, const FullProblem& problem, const std::optional<DeviceLimits>& limits) {
  if (const std::string names = names_of(features_of(problem) & ~variant.takes); !names.empty())
    return "it does not know " + names;
  if (const std::string names = names_of(variant.needs & ~features_of(problem)); !names.empty())
    return "it is only for " + names;
  if (std::ranges::find(variant.dtypes, problem.dtype) == variant.dtypes.end())
    return std::string("--dtype is ") + to_string(problem.dtype) + "; allowed: " + joined(variant.dtypes, to_string<Dtype>);
  if (problem.d > variant.max_head_dim)
    return "--head-dim is " + std::to_string(problem.d) + "; allowed: 1 to " + std::to_string(variant.max_head_dim);
  for (const Variant* const step : {&variant, variant.forward_step}) {
    if (step == nullptr || step->refuse == nullptr) continue;
    if (const std::string why = step->refuse(problem); !why.empty()) return why;
  }
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, Pass::backward))
    if (spec.per_sequence > 0 && spec.shape[3] > std::numeric_limits<int>::max())
      return std::to_string(problem.sequences.count()) + " sequences of " + std::to_string(problem.Nq) +
             " queries; allowed: fewer, as offsets into " + spec.name + " have 32 bits";
  return limits && variant.refuse_on != nullptr ? variant.refuse_on(problem, *limits) : "";
}

Prediction predict(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                   std::optional<Tiles> tiles) {
  if (variant.predict == nullptr) return {};
  const PassPlan plan = plan_pass(variant, problem, pass, limits, tiles);
  Prediction prediction = variant.predict(variant, padded(variant, problem), pass, plan.choice, limits);
  add_copies(prediction, variant, problem, pass);
  std::map<std::string, std::int64_t> bytes;  // of an element; 4 where nothing else is said
  for (const WorkspaceSpec& spec : plan.workspaces) bytes.try_emplace(spec.name, size_of(spec.dtype));
  for (const ProblemTensor& tensor : problem_tensors()) bytes[tensor.name] = size_of(tensor.dtype(problem));
  for (auto& [name, moved] : prediction.tensors) {
    const std::int64_t each = bytes.try_emplace(name, 4).first->second;
    moved.read *= each, moved.written *= each;
  }
  std::erase_if(prediction.tensors, [](const auto& entry) { return entry.second.read + entry.second.written == 0; });
  return prediction;
}

std::string why_it_cannot_run(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits) {
  if (!has_pass(variant, pass)) return "it has no backward pass";
  if (std::string why = refusal(variant, problem, limits); !why.empty()) return why;
  if (variant.tiles == nullptr || !variant.tiles(problem, pass, limits).empty()) return "";
  return "none of its tiles fits compute capability " + std::to_string(limits.sm / 10) + "." + std::to_string(limits.sm % 10) +
         " with " + std::to_string(limits.shared_bytes) + " bytes of shared memory for a block";
}

RegisterVariants::RegisterVariants(Backend backend, const std::vector<Registration>& added) {
  registered(backend).insert(registered(backend).end(), added.begin(), added.end());
}

}  // namespace flash
