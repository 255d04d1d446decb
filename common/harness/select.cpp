#include "common/harness/select.hpp"

#include "common/attention/cost.hpp"
#include "common/attention/option_table.hpp"
#include "common/attention/registry.hpp"
#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"

#include <algorithm>

namespace flash {
namespace {

double elements(const std::array<std::int64_t, 4>& shape) {
  double product = 1;
  for (const std::int64_t extent : shape) product *= static_cast<double>(extent);
  return product;
}

}  // namespace

std::unique_ptr<Device> choose_device(const Request& request) {
  std::string why_not;
  if (request.device != DeviceChoice::cpu) {
    std::unique_ptr<Device> gpu = open_gpu(why_not);
    if (gpu) return gpu;
    if (request.device == DeviceChoice::gpu) throw DeviceError("--device is gpu, but " + why_not + "; allowed here: auto, cpu");
  }
  if (request.bench) {
    throw UsageError(
        "--bench needs a GPU" + (why_not.empty() ? "" : " (" + why_not + ")") +
        ": the CPU simulates kernels to count and check, its times mean nothing; leave --bench out for the counts");
  }
  return open_cpu();
}

const Variant& choose_variant(const StageInfo& stage, const Request& request, Backend backend, const FullProblem* problem,
                              DeviceLimits limits) {
  const std::vector<Variant>& list = variants(backend);
  if (list.empty()) throw std::logic_error(stage.name + " has no kernels");
  const auto is_general = [](const Variant& variant) { return !variant.only_if_fastest; };
  const auto dtype = request.problem.find("--dtype");
  const auto has_pass = [&](const Variant& variant) { return request.pass == Pass::forward || variant.backward != nullptr; };
  const auto takes = [&](const Variant& variant) {
    return is_general(variant) && has_pass(variant) &&
           (dtype == request.problem.end() ||
            std::ranges::find(variant.dtypes, dtype->second, to_string<Dtype>) != variant.dtypes.end());
  };
  const Variant* chosen = find_variant(backend, request.variant);
  if (!request.variant.empty()) {
    if (chosen == nullptr)
      throw UsageError("--variant is '" + request.variant +
                       "'; allowed: " + joined(list, [](const Variant& each) { return each.name; }));
  } else if (problem == nullptr || backend == Backend::cpu ||
             (chosen = fastest_variant(backend, *problem, request.pass, limits)) == nullptr) {
    auto found = std::find_if(list.rbegin(), list.rend(), takes);
    if (found == list.rend()) found = std::find_if(list.rbegin(), std::prev(list.rend()), is_general);
    chosen = &*found;
    if (problem != nullptr && !knows(*chosen, *problem)) {
      const auto knowing = [&](const Variant& variant) { return knows(variant, *problem) && has_pass(variant); };
      found = std::find_if(list.rbegin(), list.rend(), knowing);
      if (found != list.rend()) chosen = &*found;
    }
  }
  if (has_pass(*chosen)) return *chosen;
  throw UsageError("--pass is backward, but " + stage.name + " variant " + chosen->name + " has none; allowed: forward" +
                   (stage.backward_stage.empty() ? "" : "; " + stage.backward_stage + " has a backward pass"));
}

void check_variant(const Variant& variant, const FullProblem& problem, const DeviceLimits& limits) {
  const std::string refuses = std::string("variant ") + variant.name + " refuses this problem: ";
  if (std::string why = refusal(variant, problem); !why.empty()) {
    const auto taker = std::ranges::find_if(variants(Backend::cpu), [&](const Variant& v) {
      const Pass pass = variant.backward == nullptr ? Pass::forward : Pass::backward;
      if (pass == Pass::backward && v.backward == nullptr) return false;
      return refusal(v, problem).empty() && (v.fastest == nullptr || v.fastest(problem, pass));
    });
    if (taker != variants(Backend::cpu).end() && why.find("--variant") == std::string::npos) {
      why += std::string("; variant ") + taker->name + " takes it";
    } else if (problem.dtype != Dtype::fp32 && variant.dtypes == std::vector{Dtype::fp32}) {
      why += "; 08_tensor_cores takes fp16 and bf16";
    } else if (problem.d > variant.max_head_dim) {
      why += "; 08_tensor_cores takes head dimensions up to 256, in fp16 and bf16";
    } else if ((features_of(problem) & (every_bias | Features::any_scale)) != Features::none) {
      why += "; 01_naive, 06_fa2_forward and 07_fa2_backward take it";
    }
    throw UsageError(refuses + why);
  }
  if (const std::string why = refusal_on(variant, problem, limits); !why.empty()) throw DeviceError(refuses + why);
}

void check_memory(const DeviceInfo& device, const Variant& variant, const FullProblem& problem, Pass pass, bool loaded) {
  const double q = elements(shape_of(problem, Role::q)), kv = 2 * elements(shape_of(problem, Role::k));
  const double bias = elements(bias_shape(problem)), lse = q / problem.d;
  const double bias_gradient = problem.bias_gradient ? bias : 0;
  const bool backward = pass == Pass::backward;
  const double inputs = q + kv + (backward ? q : 0);   // Q, K, V, dO
  const double outputs = q + (backward ? q + kv : 0);  // O, dQ, dK, dV
  double on_device = (inputs + outputs) * static_cast<double>(size_of(problem.dtype)) + (bias + bias_gradient + lse) * 4;
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, pass)) {
    on_device += elements(spec.shape) * static_cast<double>(size_of(spec.dtype));
  }
  // The host keeps everything as fp32, and stages the largest tensor for each copy.
  double on_host = (outputs + bias_gradient + lse + std::max({q, kv, bias}) + (loaded ? 0 : inputs + bias)) * 4;
  if (device.kind == Backend::cpu) {
    on_host += on_device;
  } else if (on_device > static_cast<double>(device.memory_free)) {
    throw DeviceError("the problem needs " + bytes_text(on_device) + " on " + device.name + "; " +
                      bytes_text(static_cast<double>(device.memory_free)) + " are free");
  }
  require_host_memory(on_host, "the problem");
}

std::string simulation_note(const FullProblem& problem, Pass pass) {
  constexpr double simulated_in_seconds = 1e10;  // FLOPs
  return flops(problem, pass) < simulated_in_seconds ? "" : "the CPU simulator may take minutes for this problem";
}

std::string to_string(const Tiles& tiles) { return std::to_string(tiles.Br) + "," + std::to_string(tiles.Bc); }

std::optional<Tiles> choose_tiles(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                                  std::optional<Tiles> wanted) {
  const std::string given = wanted ? "--tiles is " + to_string(*wanted) : "";
  if (variant.tiles == nullptr) {
    if (wanted)
      throw UsageError(given + ", but variant " + variant.name + " has no tile sizes to choose from; --list shows which have");
    return std::nullopt;
  }
  const std::vector<TileChoice> choices = variant.tiles(problem, pass, limits);
  const std::string here = std::string(to_string(pass)) + " pass of " + variant.name + " at d=" + std::to_string(problem.d);
  if (choices.empty()) {
    throw DeviceError("no tiles for the " + here + " run here: compute capability " + std::to_string(limits.sm / 10) + "." +
                      std::to_string(limits.sm % 10) + ", " + std::to_string(limits.shared_bytes) +
                      " bytes of shared memory for a block");
  }
  if (!wanted) return choices.front().tiles;
  if (std::ranges::find(choices, *wanted, &TileChoice::tiles) != choices.end()) return wanted;
  throw UsageError(given + "; allowed for the " + here + " here: " +
                   joined(
                       choices, [](const TileChoice& choice) { return to_string(choice.tiles); }, "  "));
}

}  // namespace flash
