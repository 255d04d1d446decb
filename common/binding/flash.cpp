#include "common/binding/flash.h"

#include "common/attention/device.hpp"
#include "common/base/error.hpp"
#include "common/binding/stream.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <string_view>
#include <utility>

namespace flash {
namespace {

thread_local std::string error;

Device& device_of(const flash_call& call) {
  if (call.on_gpu != 0) {
    static std::string missing;
    static const std::unique_ptr<Device> gpu = open_gpu(missing);
    if (gpu == nullptr) throw DeviceError(missing);
    return *gpu;
  }
  static const std::unique_ptr<Device> cpu = open_cpu();
  return *cpu;
}

Problem problem_of(const flash_call& call) {
  if (call.dtype < FLASH_FP32 || call.dtype > FLASH_BF16) throw UsageError("dtype is none of fp32, fp16, bf16");
  Problem problem;
  const auto& [B, H, Nq, d] = call.Q.shape;
  if (const std::string why = set_sizes(problem, {B, H, call.K.shape[1], Nq, call.K.shape[2], d}); !why.empty()) {
    throw UsageError(why);
  }
  if (!std::isfinite(call.scale))
    throw UsageError("scale is " + std::to_string(call.scale) + "; allowed: a finite fp32 number");
  problem.scale = call.scale;
  problem.causal = call.causal != 0;
  problem.dtype = static_cast<Dtype>(call.dtype);
  return problem;
}

/// "" or why the variant cannot run the pass of this problem on the device.
std::string why_not(const Variant& variant, const Problem& problem, Pass pass, const DeviceLimits& limits) {
  if (pass == Pass::backward && variant.backward == nullptr) return "it has no backward pass";
  if (std::string why = refusal_on(variant, problem, limits); !why.empty()) return why;
  if (variant.tiles != nullptr && variant.tiles(problem, pass, limits).empty()) return "none of its tiles fit this GPU";
  return "";
}

const Variant& choose(const flash_call& call, const Problem& problem, Pass pass, Device& device) {
  const std::vector<Variant>& all = variants(device.info().kind);
  const std::string_view wanted = call.variant == nullptr ? "" : call.variant;
  const bool any_backward = std::any_of(all.begin(), all.end(), [](const Variant& v) { return v.backward != nullptr; });
  std::string why, names;
  for (auto variant = all.rbegin(); variant != all.rend(); ++variant) {
    names = variant->name + (names.empty() ? "" : ", " + names);
    if (wanted.empty() ? any_backward && variant->backward == nullptr : wanted != variant->name) continue;
    const std::string refused = why_not(*variant, problem, pass, device.limits());
    if (refused.empty()) return *variant;
    if (why.empty()) why = std::string("variant ") + variant->name + " cannot run this: " + refused;
  }
  throw UsageError(why.empty() ? "there is no variant '" + std::string(wanted) + "'; there are: " + names : why);
}

/// The tensor, of which an extent of 1 has a stride of 0: what it has otherwise is never used and need not be aligned.
TensorRef tensor_of(const flash_tensor& given, const char* name, Dtype dtype, const std::array<std::int64_t, 4>& shape) {
  TensorRef tensor{given.data, name, dtype, shape, {}};
  const auto refuse = [&](const std::string& why) { throw UsageError(std::string(name) + ' ' + why); };
  if (!std::equal(shape.begin(), shape.end(), given.shape)) refuse("does not have the shape that Q and K ask for");
  if (given.data == nullptr) refuse("has no data");
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape[axis] == 1) continue;
    if (given.stride[axis] < 1) refuse("repeats entries or runs backwards; make it contiguous");
    tensor.stride[axis] = given.stride[axis];
  }
  if (shape[3] > 1 && given.stride[3] != 1) refuse("does not have adjacent columns; make it contiguous");
  if (dtype != Dtype::fp32 && shape[3] % 8 == 0 && !rows_are_aligned({tensor})) {
    refuse("has rows that do not begin at multiples of 16 bytes; make it contiguous");
  }
  return tensor;
}

std::vector<WorkspaceSpec> workspaces_of(const Variant& variant, const Problem& problem, Pass pass) {
  return variant.workspace == nullptr ? std::vector<WorkspaceSpec>{} : variant.workspace(problem, pass);
}

/// A backward kernel may use what its forward pass has left in workspaces. O and L are all that callers keep, so that pass runs again then.
bool runs_forward_again(const Variant& variant, const Problem& problem) {
  return !workspaces_of(variant, problem, Pass::forward).empty();
}

/// The workspaces of a pass, one after the other in the caller's block, those that have to be zero first.
struct Block {
  static constexpr std::int64_t alignment = 256;  // cudaMalloc's
  std::vector<TensorRef> tensors;
  std::int64_t bytes = 0, zeroed = 0;

  Block(const Variant& variant, const Problem& p, Pass pass, void* base) {
    std::vector<WorkspaceSpec> specs = workspaces_of(variant, p, pass);
    if (pass == Pass::backward && runs_forward_again(variant, p)) {
      specs.push_back({"O", {p.B, p.H, p.Nq, p.d}, p.dtype});  // as it was, but the caller's is not written
      specs.push_back({"L", {p.B, p.H, p.Nq, 1}});
    }
    std::stable_partition(specs.begin(), specs.end(), [](const WorkspaceSpec& spec) { return spec.zeroed; });
    for (const WorkspaceSpec& spec : specs) {
      TensorRef tensor{nullptr, spec.name, spec.dtype, spec.shape, dense_strides(spec.shape)};
      if (base != nullptr) tensor.data = static_cast<char*>(base) + bytes;
      bytes += (tensor.elements() * size_of(spec.dtype) + alignment - 1) / alignment * alignment;
      if (spec.zeroed) zeroed = bytes;
      tensors.push_back(tensor);
    }
  }
};

void launch(const Variant& variant, Attention a, Pass pass) {
  if (variant.tiles != nullptr) a.tiles = variant.tiles(a.problem, pass, a.limits).front().tiles;
  (pass == Pass::backward ? variant.backward : variant.forward)(a);
}

void run(const flash_call& call, Pass pass) {
  Device& device = device_of(call);
  Attention a;
  a.problem = problem_of(call);
  a.limits = device.limits();
  const Variant& variant = choose(call, a.problem, pass, device);
  const auto query_side = shape_of(a.problem, Role::q), key_side = shape_of(a.problem, Role::k);
  a.Q = tensor_of(call.Q, "Q", a.problem.dtype, query_side);
  a.K = tensor_of(call.K, "K", a.problem.dtype, key_side);
  a.V = tensor_of(call.V, "V", a.problem.dtype, key_side);
  a.O = tensor_of(call.O, "O", a.problem.dtype, query_side);
  a.L = tensor_of(call.L, "L", Dtype::fp32, {a.problem.B, a.problem.H, a.problem.Nq, 1});
  if (pass == Pass::backward) {
    a.dO = tensor_of(call.dO, "dO", a.problem.dtype, query_side);
    a.dQ = tensor_of(call.dQ, "dQ", a.problem.dtype, query_side);
    a.dK = tensor_of(call.dK, "dK", a.problem.dtype, key_side);
    a.dV = tensor_of(call.dV, "dV", a.problem.dtype, key_side);
  }
  const Block block(variant, a.problem, pass, call.workspace);
  if (block.bytes > 0 && reinterpret_cast<std::uintptr_t>(call.workspace) % Block::alignment != 0) {
    throw UsageError("the workspace is not aligned to 256 bytes");
  }
  if (block.bytes > 0 && call.workspace == nullptr) throw UsageError("the workspace is missing");
  a.workspaces = block.tensors;

  wait_for(call.stream);
  if (pass == Pass::backward && runs_forward_again(variant, a.problem)) {
    Attention again = a;
    again.O = a.workspace("O");
    again.L = a.workspace("L");
    launch(variant, again, Pass::forward);
  }
  launch(variant, a, pass);
  let_wait(call.stream);
}

/// What the programs call an option is an argument here.
std::string without_dashes(std::string text) {
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at)) text.erase(at, 2);
  return text;
}

template <class F>
int guarded(F f) {
  const auto failed = [](const char* why, int code) {
    error = without_dashes(why);
    return code;
  };
  try {
    f();
    error.clear();
    return 0;
  } catch (const UsageError& e) {
    return failed(e.what(), 2);
  } catch (const DeviceError& e) {
    return failed(e.what(), 3);
  } catch (const std::bad_alloc&) {
    return failed("not enough main memory for this problem", 3);
  } catch (const std::exception& e) {
    return failed(e.what(), 1);
  }
}

}  // namespace
}  // namespace flash

#define FLASH_EXPORT __attribute__((visibility("default")))

extern "C" {

FLASH_EXPORT int flash_workspace(const flash_call* call, int32_t backward, int64_t* bytes, int64_t* zeroed) {
  return flash::guarded([&] {
    const flash::Pass pass = backward != 0 ? flash::Pass::backward : flash::Pass::forward;
    const flash::Problem problem = flash::problem_of(*call);
    const flash::Block block(flash::choose(*call, problem, pass, flash::device_of(*call)), problem, pass, nullptr);
    *bytes = block.bytes;
    *zeroed = block.zeroed;
  });
}

FLASH_EXPORT int flash_forward(const flash_call* call) {
  return flash::guarded([&] { flash::run(*call, flash::Pass::forward); });
}

FLASH_EXPORT int flash_backward(const flash_call* call) {
  return flash::guarded([&] { flash::run(*call, flash::Pass::backward); });
}

FLASH_EXPORT const char* flash_error(void) { return flash::error.c_str(); }
}
