#include "common/harness/runner.hpp"

#include "common/machine/cpu/options.hpp"
#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/reference/parallel.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace flash {
namespace {

/// Calls visit(index in the dense host tensor, element offset from the tensor's first element on the device) for all elements, heads
/// side by side on the cores of the host.
template <class Visit>
void for_each_element(const Extents& shape, const Extents& stride, Visit&& visit) {
  parallel_for(shape[0], shape[1], [&](std::int64_t b, std::int64_t h) {
    std::size_t dense = static_cast<std::size_t>((b * shape[1] + h) * shape[2] * shape[3]);
    for (std::int64_t row = 0; row < shape[2]; ++row) {
      const std::int64_t base = b * stride[0] + h * stride[1] + row * stride[2];
      for (std::int64_t col = 0; col < shape[3]; ++col) visit(dense++, base + col * stride[3]);
    }
  });
}

std::size_t bytes_of(const TensorRef& tensor) { return static_cast<std::size_t>(tensor.elements() * size_of(tensor.dtype)); }

/// Calls visit(tensor, as kernels see it, where it begins) for all tensors in the buffer.
template <class Visit>
void each_in(const Buffer& buffer, const Attention& a, Pass pass, Visit&& visit) {
  each_tensor(a.problem, pass, [&](const ProblemTensor& each) {
    const TensorRef& tensor = a.*each.on_device;
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data) - reinterpret_cast<std::uintptr_t>(buffer.data());
    if (begin < buffer.bytes()) visit(each, tensor, begin);
  });
}

}  // namespace

std::vector<TensorRef> make_workspaces(Device& device, const Variant& variant, const FullProblem& problem, Pass pass,
                                       std::vector<Buffer>& others, std::vector<Buffer>& zeroed) {
  std::vector<TensorRef> workspaces;
  for (const WorkspaceSpec& spec : workspaces_of(variant, problem, pass)) {
    TensorRef& tensor = workspaces.emplace_back(dense_tensor(spec.name, spec.dtype, spec.shape));
    Buffer& buffer = (spec.zeroed ? zeroed : others).emplace_back(device, bytes_of(tensor));
    tensor.data = buffer.data();
    if (spec.zeroed) device.upload(tensor.data, std::vector<char>(bytes_of(tensor)).data(), bytes_of(tensor));
  }
  return workspaces;
}

void check_memory(const DeviceInfo& device, const Variant& variant, const FullProblem& problem, Pass pass, bool loaded) {
  double on_device = 0, on_host = 0, staged = 0;  // the host keeps tensors as fp32, and stages the largest buffer for each copy
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    const double elements = static_cast<double>(elements_of(each.shape(problem)));
    on_device += elements * static_cast<double>(size_of(each.dtype(problem)));
    if (each.result != nullptr || !loaded) on_host += 4 * elements;
    staged = std::max(staged, 4 * static_cast<double>(placement_of(problem, each.role).elements));
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

Runner::Runner(Device& device, const Variant& variant, const FullProblem& problem, const Inputs& inputs, Pass pass,
               std::optional<Tiles> tiles)
    : device_(device), variant_(variant), pass_(pass), tiles_(tiles) {
  Attention a;
  a.problem = problem;
  a.limits = device.limits();

  // A buffer for each home; tensors that are packed together share one.
  std::map<std::pair<bool, Role>, void*> homes;
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    const bool is_input = each.input != nullptr;
    std::vector<Buffer>& owners = is_input ? inputs_ : outputs_;
    TensorRef& tensor = a.*each.on_device = each.kernel_view(problem);
    const std::int64_t bytes = size_of(tensor.dtype);
    const Placement placement = placement_of(problem, each.role);
    void*& home = homes[{is_input, placement.home}];
    if (home == nullptr) home = owners.emplace_back(device_, static_cast<std::size_t>(placement.elements * bytes)).data();
    tensor.data = static_cast<char*>(home) + placement.offset * bytes;
  });
  a.workspaces = make_workspaces(device, variant, problem, pass, workspaces_, kept_);
  for (const Pass each : {Pass::forward, pass}) {
    const PassPlan plan = plan_pass(variant, problem, each, a.limits, each == pass ? tiles : std::nullopt);
    a.tiles = plan.choice.tiles;
    a.offsets = upload_pairs("offsets", plan.offsets);
    a.order = upload_pairs("order", plan.order);
    launches_[each] = a;
  }
  upload_all(inputs);
  // The simulator counts by these names: a bias by what is stored of it.
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    TensorRef stored = a.*each.on_device;
    stored.shape = each.shape(problem);
    simt::name_tensor(stored);
  });
  for (const TensorRef& workspace : a.workspaces) simt::name_tensor(workspace);
}

TensorRef Runner::upload_pairs(const char* name, const std::vector<int>& pairs) {
  if (pairs.empty()) return {};
  TensorRef tensor = dense_tensor(name, Dtype::fp32, {1, 1, static_cast<std::int64_t>(pairs.size() / 2), 2});
  tensor.data = kept_.emplace_back(device_, bytes_of(tensor)).data();
  device_.upload(tensor.data, pairs.data(), bytes_of(tensor));
  return tensor;
}

void Runner::upload_all(const Inputs& inputs) {
  for (const Buffer& buffer : inputs_) {
    std::vector<char> staging(buffer.bytes(), '\xff');
    each_in(buffer, attention(), pass_, [&](const ProblemTensor& each, const TensorRef& tensor, std::size_t begin) {
      const HostTensor<float>& host = inputs.*each.input;
      const Extents shape = each.shape(attention().problem);
      if (static_cast<std::int64_t>(host.values.size()) != elements_of(shape))
        throw std::logic_error(std::string("input ") + tensor.name + " does not have the problem's shape");
      for_each_element(shape, tensor.stride, [&](std::size_t dense, std::int64_t offset) {
        store(tensor.dtype, staging.data() + begin + offset * size_of(tensor.dtype), host.values[dense]);
      });
    });
    device_.upload(buffer.data(), staging.data(), staging.size());
  }
}

void Runner::begin() {
  last_run = {variant_.name, attention().problem, pass_, tiles_, attention().limits.sm};
  for (Buffer& buffer : outputs_) buffer.poison();
  for (Buffer& buffer : workspaces_) buffer.poison();
}

void Runner::run() {
  begin();
  device_.run([&] {
    if (pass_ == Pass::backward) launch(Pass::forward);
    launch(pass_);
  });
}

Timing Runner::time(int iterations) {
  run();
  return device_.time([&] { launch(pass_); }, iterations);
}

Counters Runner::count(Counters* before) {
  begin();
  device_.reset_counters();
  if (pass_ == Pass::backward) device_.run([&] { launch(Pass::forward); });
  if (before != nullptr) *before = device_.counters();
  device_.reset_counters();
  device_.run([&] { launch(pass_); });
  return device_.counters();
}

Results<float> Runner::results() const {
  Results<float> results;
  for (const Buffer& buffer : outputs_) {  // one copy of each: packed tensors lie between their neighbours
    std::vector<char> staging(buffer.bytes());
    device_.download(staging.data(), buffer.data(), staging.size());
    each_in(buffer, attention(), pass_, [&](const ProblemTensor& each, const TensorRef& tensor, std::size_t begin) {
      HostTensor<float>& host = results.*each.result = HostTensor<float>(tensor.shape);
      for_each_element(tensor.shape, tensor.stride, [&](std::size_t dense, std::int64_t offset) {
        host.values[dense] = load(tensor.dtype, staging.data() + begin + offset * size_of(tensor.dtype));
      });
    });
  }
  return results;
}

std::size_t Runner::workspace_bytes() const {
  std::size_t sum = 0;
  for (const TensorRef& workspace : attention().workspaces) sum += bytes_of(workspace);
  return sum;
}

}  // namespace flash
