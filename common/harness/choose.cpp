#include "common/harness/choose.hpp"

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

void check_memory(const DeviceInfo& device, const Variant& variant, const FullProblem& problem, Pass pass, bool loaded) {
  double on_device = 0, on_host = 0, staged = 0;  // the host keeps tensors as fp32, and stages the largest buffer for each copy
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    const double elements = static_cast<double>(elements_of(each.shape(problem)));
    on_device += elements * static_cast<double>(size_of(each.dtype(problem)));
    if (each.result != nullptr || !loaded) on_host += 4 * elements;
    staged = std::max(staged, 4 * (each.role ? static_cast<double>(placement_of(problem, *each.role).elements) : elements));
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
  if (choices.empty())
    throw DeviceError(std::string("variant ") + variant.name + ": " + why_it_cannot_run(variant, problem, pass, limits));
  if (!wanted) return choices.front().tiles;
  if (std::ranges::find(choices, *wanted, &TileChoice::tiles) != choices.end()) return wanted;
  throw UsageError(given + "; allowed for " + variant.name + " here: " +
                   joined(
                       choices, [](const TileChoice& choice) { return to_string(choice.tiles); }, "  "));
}

}  // namespace flash
