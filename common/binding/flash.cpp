#include "common/binding/flash.h"

#include "common/attention/option_table.hpp"
#include "common/attention/registry.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/binding/stream.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/device.hpp"
#include "common/machine/error.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

namespace flash {
namespace {

thread_local std::string error;

Device& device_of(bool on_gpu) {
  if (on_gpu) {
    static std::mutex mutex;  // threads of the caller may each use a GPU of their own
    static std::map<int, std::unique_ptr<Device>> gpus;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Device>& gpu = gpus[current_gpu()];
    std::string missing;
    if (gpu == nullptr) gpu = open_gpu(missing);
    if (gpu == nullptr) throw DeviceError(missing);
    return *gpu;
  }
  static const std::unique_ptr<Device> cpu = open_cpu();
  return *cpu;
}

/// "--causal=true\n--window=100,0" by name.
GivenOptions options_of(const char* text) {
  GivenOptions given;
  std::istringstream lines(text == nullptr ? "" : text);
  for (std::string name; std::getline(lines, name, '='); std::getline(lines, given[name]))
    if (std::ranges::find(problem_options(), name, &ProblemOption::name) == problem_options().end())
      throw UsageError("a problem has no option '" + name + "'");
  return given;
}

bool exists(const flash_tensor& tensor) { return tensor.shape[3] != 0; }

FullProblem problem_of(const flash_call& call, Pass pass) {
  const auto& [B, H, Nq, d] = call.Q.shape;
  GivenOptions given = options_of(call.options);
  const std::int64_t Nk = call.K.shape[2] * (exists(call.pages) ? call.pages.shape[3] : 1);
  for (const auto& [name, value] : given_sizes({B, H, call.K.shape[1], Nq, Nk, d})) given[name] = value;
  const auto& bias = call.bias.shape;
  if (exists(call.bias)) {
    if (given["--bias"] != "alibi") given["--bias"] = bias[2] == 1 && Nq > 1 ? "vector" : "matrix";
    given["--bias-per-batch"] = bias[0] > 1 ? "true" : "false";
    given["--bias-per-head"] = bias[1] > 1 ? "true" : "false";
  }
  if (pass == Pass::backward && exists(call.dBias)) given["--bias-gradient"] = "true";
  if (call.dtype < FLASH_FP32 || call.dtype > FLASH_BF16) throw UsageError("dtype is none of fp32, fp16, bf16");
  given["--dtype"] = to_string(static_cast<Dtype>(call.dtype));
  return make_problem(given);
}

/// Callers see one kind of refusal, whether the problem or the GPU is the reason.
const Variant& choose(const flash_call& call, const FullProblem& problem, Pass pass, Device& device) try {
  const std::string name = call.variant == nullptr ? "" : call.variant;
  if (pass == Pass::backward && std::ranges::none_of(variants(device.info().kind), [](const Variant& v) { return v.backward; }))
    throw UsageError("it has no backward pass; stages 07 and 08 have one");
  return choose_variant(device.info().kind, name, problem, pass, device.limits(), call.deterministic != 0);
} catch (const DeviceError& refused) {
  throw UsageError(refused.what());
}

/// Where a call has the tensors, in the order of problem_tensors().
constexpr std::array given_tensors{&flash_call::Q,  &flash_call::K,  &flash_call::V,    &flash_call::bias,
                                   &flash_call::O,  &flash_call::L,  &flash_call::dO,   &flash_call::dQ,
                                   &flash_call::dK, &flash_call::dV, &flash_call::dBias};

/// The tensor as kernels see it: an extent of 1 has a stride of 0, since what it has otherwise is never used and need not be aligned.
/// `shape`: what is given. A tensor that `repeats` may share its entries.
TensorRef tensor_of(const flash_tensor& given, TensorRef seen, const Extents& shape, bool repeats = false) {
  const auto refuse = [&](const std::string& why) { throw UsageError(std::string(seen.name) + ' ' + why); };
  if (!std::equal(shape.begin(), shape.end(), given.shape))
    refuse(repeats ? "is neither [B or 1, H or 1, N or 1, Nk] nor slopes [B or 1, H or 1, 1, 1]"
                   : "does not have the shape that Q and K ask for");
  if (given.data == nullptr) refuse("has no data");
  seen.data = given.data;
  bool fits = shape[3] == 1 || given.stride[3] == 1;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    seen.stride[axis] = shape[axis] == 1 ? 0 : given.stride[axis];
    fits = fits && (shape[axis] == 1 || given.stride[axis] >= (repeats ? 0 : 1));
  }
  const auto whole = [&](std::int64_t elements) { return elements * size_of(seen.dtype) % 16 == 0; };
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(seen.data) % 16 == 0 && std::all_of(seen.stride.begin(), seen.stride.begin() + 3, whole);
  if (!fits || (!repeats && whole(shape[3]) && !aligned))
    refuse("needs adjacent columns, positive strides and rows at multiples of 16 bytes; copy it");
  return seen;
}

/// The workspaces of a pass, one after the other in the caller's block, those that have to be zero first.
struct Workspaces {
  static constexpr std::int64_t alignment = 256;  // cudaMalloc's
  std::vector<TensorRef> tensors;
  std::vector<std::int64_t> starts;  ///< of each, in bytes
  std::int64_t bytes = 0, zeroed = 0;

  /// Also of "offsets" and "order" of a ragged batch.
  explicit Workspaces(const PassPlan& plan) {
    std::vector<WorkspaceSpec> specs = plan.workspaces;
    const auto add_pairs = [&](const char* name, const std::vector<int>& pairs) {
      if (!pairs.empty()) specs.push_back({name, {1, 1, static_cast<std::int64_t>(pairs.size() / 2), 2}});
    };
    add_pairs("offsets", plan.offsets);
    add_pairs("order", plan.order);
    std::stable_partition(specs.begin(), specs.end(), [](const WorkspaceSpec& spec) { return spec.zeroed; });
    for (const WorkspaceSpec& spec : specs) {
      tensors.push_back(dense_tensor(spec.name, spec.dtype, spec.shape));
      starts.push_back(bytes);
      bytes += (tensors.back().elements() * size_of(spec.dtype) + alignment - 1) / alignment * alignment;
      if (spec.zeroed) zeroed = bytes;
    }
  }

  std::vector<TensorRef> at(void* base) const {
    std::vector<TensorRef> placed = tensors;
    for (std::size_t n = 0; n < placed.size(); ++n) placed[n].data = static_cast<char*>(base) + starts[n];
    return placed;
  }
};

/// What follows from a call whatever its pointers are.
struct PlannedCall {
  const Variant* variant;
  Attention attention;
  PassPlan plan;
  Workspaces workspaces;
};

/// Worked out once for calls that are alike, since it takes as long as a short kernel.
const PlannedCall& planned(const flash_call& call, Pass pass, Device& device) {
  thread_local std::map<std::string, PlannedCall> plans;
  std::string key =
      std::string(call.variant == nullptr ? "" : call.variant) + '\n' + (call.options == nullptr ? "" : call.options);
  const auto add = [&](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (const flash_tensor* tensor : {&call.Q, &call.K, &call.bias, &call.dBias, &call.ends, &call.firsts, &call.pages})
    add(tensor->shape);
  for (const int value : {static_cast<int>(pass), call.on_gpu != 0 ? current_gpu() : -1, call.dtype, call.deterministic})
    add(value);
  if (const auto known = plans.find(key); known != plans.end()) return known->second;
  if (plans.size() >= 256) plans.clear();  // lengths of packed sequences may never come again
  Attention a;
  a.problem = problem_of(call, pass);
  a.limits = device.limits();
  const Variant& variant = choose(call, a.problem, pass, device);
  if (exists(call.ends) ? !variant.reads_cache || a.problem.d % variant.row_multiple != 0
                        : exists(call.firsts) || exists(call.pages))
    throw UsageError(std::string(variant.name) + " reads no cache at this d, or its ends are missing");
  if (exists(call.pages) && call.pages.shape[3] > 1 && call.K.shape[2] % 64 != 0)
    throw UsageError("pages have " + std::to_string(call.K.shape[2]) + " rows; allowed: a multiple of 64");
  const auto is_copy = [](const WorkspaceSpec& workspace) {
    return std::ranges::find(problem_tensors(), workspace.name, &ProblemTensor::copy) != problem_tensors().end();
  };
  if (pass == Pass::backward && !std::ranges::all_of(workspaces_of(variant, a.problem, Pass::forward), is_copy))
    throw UsageError("the backward pass of " + std::string(variant.name) +
                     " needs more of its forward pass than O and L; stages 07 and 08 do not");
  const PassPlan plan = plan_pass(variant, a.problem, pass, a.limits);
  a.tiles = plan.choice.tiles;
  if (variant.by_launches && call.deterministic != 0 && pass == Pass::backward) a.launches = launches_of(a.problem, a.tiles.Bc);
  return plans.insert({key, {&variant, a, plan, Workspaces(plan)}}).first->second;
}

void run(const flash_call& call, Pass pass) {
  const auto& [variant, attention, plan, workspaces] = planned(call, pass, device_of(call.on_gpu != 0));
  Attention a = attention;
  if (call.seed != 0) a.problem.dropout.seed = call.seed;
  each_tensor(a.problem, pass, [&](const ProblemTensor& each) {
    const auto place = static_cast<std::size_t>(&each - problem_tensors().data());
    const bool repeats = each.input != nullptr && each.role == Role::bias;  // a bias, by all heads
    TensorRef seen = each.kernel_view(a.problem);
    Extents shape = each.shape(a.problem);
    if (exists(call.pages) && of_keys(each.role)) {
      shape[0] = call.K.shape[0], shape[2] = call.K.shape[2];  // all pages, and the rows of one
      seen.shape = shape;
    }
    a.*each.on_device = tensor_of(call.*given_tensors.at(place), seen, shape, repeats);
  });
  const auto numbers = [&](const char* name, const flash_tensor& given, std::int64_t each, TensorRef& tensor) {
    if (!exists(given)) return;
    if (given.shape[2] != a.problem.B || given.shape[3] != each) throw UsageError(std::string(name) + " has another shape");
    tensor = dense_tensor(name, Dtype::fp32, {1, 1, a.problem.B, each});
    tensor.data = given.data;
  };
  numbers("ends", call.ends, 1, a.ends);
  numbers("firsts", call.firsts, 1, a.firsts);
  numbers("pages", call.pages, call.pages.shape[3], a.pages);
  if (workspaces.bytes > 0 &&
      (call.workspace == nullptr || reinterpret_cast<std::uintptr_t>(call.workspace) % Workspaces::alignment != 0))
    throw UsageError("the workspace is missing, or not aligned to 256 bytes");
  a.workspaces = workspaces.at(call.workspace);

  stop_request = &call.stop;
  launch_on(call.stream);
  const auto write = [&](const char* name, const std::vector<int>& values, TensorRef& tensor) {
    if (values.empty()) return;
    tensor = a.workspace(name);
    int* to = static_cast<int*>(tensor.data);
    call.on_gpu != 0 ? write_on_gpu(to, values) : static_cast<void>(std::copy(values.begin(), values.end(), to));
  };
  write("offsets", plan.offsets, a.offsets);
  write("order", plan.order, a.order);
  launch_pass(*variant, a, pass);
}

template <class F>
int exit_code_of(F f) try {
  f();
  error.clear();
  return 0;
} catch (const std::exception& e) {
  const auto& [code, message] = code_and_message(e);
  error = message;
  return code;
}

}  // namespace
}  // namespace flash

#define FLASH_EXPORT __attribute__((visibility("default")))

extern "C" {

FLASH_EXPORT int flash_workspace(const flash_call* call, int32_t backward, int64_t* bytes, int64_t* zeroed) {
  return flash::exit_code_of([&] {
    const flash::Pass pass = backward != 0 ? flash::Pass::backward : flash::Pass::forward;
    const flash::Workspaces& workspaces = flash::planned(*call, pass, flash::device_of(call->on_gpu != 0)).workspaces;
    *bytes = workspaces.bytes;
    *zeroed = workspaces.zeroed;
  });
}

FLASH_EXPORT int flash_forward(const flash_call* call) {
  return flash::exit_code_of([&] { flash::run(*call, flash::Pass::forward); });
}

FLASH_EXPORT int flash_backward(const flash_call* call) {
  return flash::exit_code_of([&] { flash::run(*call, flash::Pass::backward); });
}

FLASH_EXPORT int32_t flash_call_size(void) { return sizeof(flash_call); }

FLASH_EXPORT const char* flash_error(void) { return flash::error.c_str(); }
}
