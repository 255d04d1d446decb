#include "common/harness/select.hpp"

#include "common/attention/option_table.hpp"
#include "common/attention/registry.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"

#include <algorithm>

namespace flash {
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
                              const DeviceLimits& limits) {
  const std::vector<Variant>& list = variants(backend);
  const auto has_pass = [&](const Variant& variant) { return request.pass == Pass::forward || variant.backward != nullptr; };
  const Variant* chosen = find_variant(backend, request.variant);
  if (!request.variant.empty() && chosen == nullptr)
    throw UsageError("--variant is '" + request.variant +
                     "'; allowed: " + joined(list, [](const Variant& each) { return each.name; }));
  if (chosen == nullptr && problem != nullptr) chosen = best_variant(backend, *problem, request.pass, limits);
  if (chosen == nullptr) {  // the last one for general use says what it refuses
    const auto general = [](const Variant& variant) { return !variant.only_if_fastest; };
    auto found = std::find_if(list.rbegin(), list.rend(), [&](const Variant& v) { return general(v) && has_pass(v); });
    if (found == list.rend()) found = std::find_if(list.rbegin(), list.rend(), general);
    if (found == list.rend()) throw std::logic_error(stage.name + " has no kernels for general use");
    chosen = &*found;
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
  double on_device = 0, on_host = 0, staged = 0;  // the host keeps tensors as fp32, and stages the largest buffer for each copy
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    const double elements = static_cast<double>(elements_of(each.shape(problem)));
    on_device += elements * static_cast<double>(size_of(each.dtype(problem)));
    if (each.result != nullptr || !loaded) on_host += 4 * elements;
    staged = std::max(staged, 4 * (each.role ? static_cast<double>(allocation_elements(problem, *each.role)) : elements));
  });
  on_host += staged;
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, pass))
    on_device += static_cast<double>(elements_of(spec.shape)) * static_cast<double>(size_of(spec.dtype));
  if (device.kind == Backend::cpu) {
    on_host += on_device;
  } else if (on_device > static_cast<double>(device.memory_free)) {
    throw DeviceError("the problem needs " + bytes_text(on_device) + " on " + device.name + "; " +
                      bytes_text(static_cast<double>(device.memory_free)) + " are free");
  }
  require_host_memory(on_host, "the problem");
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
