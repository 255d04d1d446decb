#include "common/harness/runner.hpp"

#include "common/attention/cost.hpp"
#include "common/attention/padding.hpp"
#include "common/harness/select.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/reference/parallel.hpp"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace flash {
namespace {

/// Calls visit(index in the dense host tensor, element offset from the tensor's first element on the device) for all elements, heads
/// side by side on the cores of the host.
template <class Visit>
void for_each_element(const std::array<std::int64_t, 4>& shape, const std::array<std::int64_t, 4>& stride, Visit&& visit) {
  parallel_for(shape[0] * shape[1], [&](std::int64_t task) {
    const std::int64_t b = task / shape[1], h = task % shape[1];
    std::size_t dense = static_cast<std::size_t>(task * shape[2] * shape[3]);
    for (std::int64_t row = 0; row < shape[2]; ++row) {
      const std::int64_t base = b * stride[0] + h * stride[1] + row * stride[2];
      for (std::int64_t col = 0; col < shape[3]; ++col) visit(dense++, base + col * stride[3]);
    }
  });
}

std::size_t bytes_of(const TensorRef& tensor) { return static_cast<std::size_t>(tensor.elements() * size_of(tensor.dtype)); }

TensorRef dense_tensor(const char* name, Dtype dtype, const std::array<std::int64_t, 4>& shape) {
  return {nullptr, name, dtype, shape, dense_strides(shape)};
}

/// The tensor whose allocation holds this role's tensor: Q's for packed QKV, K's for packed KV, else its own.
Role home_of(Layout layout, Role role) {
  if (layout == Layout::qkv && (role == Role::k || role == Role::v)) return Role::q;
  if (layout == Layout::kv && role == Role::v) return Role::k;
  return role;
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

Runner::Runner(Device& device, const Variant& variant, const FullProblem& problem, const Inputs& inputs, Pass pass,
               std::optional<Tiles> tiles)
    : device_(device), variant_(variant), pass_(pass), tiles_(tiles) {
  attention_.problem = problem;
  attention_.problem.input = inputs.kind, attention_.problem.seed = inputs.seed;
  attention_.limits = device.limits();

  // A buffer for each home; tensors that are packed together share one.
  using Homes = std::map<Role, void*>;
  const auto place = [&](std::vector<Buffer>& owners, Homes& homes, Role role, const char* name) {
    const Role home = home_of(problem.layout, role);
    if (!homes.contains(home)) {
      owners.emplace_back(device_, static_cast<std::size_t>(allocation_elements(problem, role) * size_of(problem.dtype)));
      homes[home] = owners.back().data();
    }
    const Placement at = placement_of(problem, role);
    return TensorRef{static_cast<char*>(homes[home]) + at.offset * size_of(problem.dtype), name, problem.dtype,
                     shape_of(problem, role), at.stride};
  };
  const auto place_fp32 = [&](std::vector<Buffer>& owners, const char* name, const std::array<std::int64_t, 4>& shape) {
    TensorRef tensor = dense_tensor(name, Dtype::fp32, shape);
    tensor.data = owners.emplace_back(device_, bytes_of(tensor)).data();
    return tensor;
  };
  Homes in, out;
  attention_.Q = place(inputs_, in, Role::q, "Q");
  attention_.K = place(inputs_, in, Role::k, "K");
  attention_.V = place(inputs_, in, Role::v, "V");
  attention_.bias = dense_tensor("bias", Dtype::fp32, bias_shape(problem));
  if (problem.bias != BiasKind::none) attention_.bias = place_fp32(inputs_, "bias", bias_shape(problem));
  attention_.O = place(outputs_, out, Role::o, "O");
  attention_.L = place_fp32(outputs_, "L", {problem.B, problem.H, problem.Nq, 1});
  if (pass == Pass::backward) {
    attention_.dO = place(inputs_, in, Role::o, "dO");
    attention_.dQ = place(outputs_, out, Role::q, "dQ");
    attention_.dK = place(outputs_, out, Role::k, "dK");
    attention_.dV = place(outputs_, out, Role::v, "dV");
    if (problem.bias_gradient) attention_.dBias = place_fp32(outputs_, "dBias", bias_shape(problem));
  }
  attention_.workspaces = make_workspaces(device, variant, problem, pass, workspaces_, zeroed_);

  upload_all(inputs);
  if (const Sequences& of = problem.sequences; !of.empty()) {
    std::vector<int> pairs;
    for (std::size_t s = 0; s < of.queries.size(); ++s) pairs.insert(pairs.end(), {of.queries[s], of.keys[s]});
    upload_pairs("offsets", pairs, attention_.offsets, offsets_);
  }

  std::vector<TensorRef> all{attention_.Q,  attention_.K,  attention_.V,  attention_.bias, attention_.O,    attention_.L,
                             attention_.dO, attention_.dQ, attention_.dK, attention_.dV,   attention_.dBias};
  all.insert(all.end(), attention_.workspaces.begin(), attention_.workspaces.end());
  for (const TensorRef& tensor : all) {
    if (tensor.data != nullptr) simt::name_tensor(tensor);
  }

  // Kernels see a broadcast bias at its full extents, with strides of 0.
  if (problem.bias == BiasKind::vector || problem.bias == BiasKind::matrix) {
    attention_.bias.shape = {problem.B, problem.H, problem.Nq, problem.Nk};
  } else if (problem.bias == BiasKind::alibi) {
    attention_.bias.shape = {problem.B, problem.H, 1, 1};
  }
}

void Runner::upload_pairs(const char* name, const std::vector<int>& pairs, TensorRef& tensor, Buffer& buffer) {
  tensor = dense_tensor(name, Dtype::fp32, {1, 1, static_cast<std::int64_t>(pairs.size() / 2), 2});
  buffer = Buffer(device_, bytes_of(tensor));
  tensor.data = buffer.data();
  device_.upload(tensor.data, pairs.data(), bytes_of(tensor));
}

void Runner::order_tiles(Pass pass) {
  if (attention_.problem.sequences.empty() || variant_.tiles == nullptr) return;
  std::vector<int> pairs;
  for (const TileOfSequence& tile : longest_first(attention_.problem, pass, *chosen_tiles(pass)))
    pairs.insert(pairs.end(), {tile.sequence, tile.first});
  Order& order = orders_[pass];
  upload_pairs("order", pairs, order.tensor, order.buffer);
}

std::optional<Tiles> Runner::chosen_tiles(Pass pass) const {
  const std::optional<Tiles> wanted = pass == pass_ ? tiles_ : std::nullopt;
  return choose_tiles(variant_, attention_.problem, pass, attention_.limits, wanted);
}

void Runner::upload_all(const Inputs& inputs) {
  const std::array<std::pair<const HostTensor<float>*, const TensorRef*>, 5> all{{{&inputs.Q, &attention_.Q},
                                                                                  {&inputs.K, &attention_.K},
                                                                                  {&inputs.V, &attention_.V},
                                                                                  {&inputs.bias, &attention_.bias},
                                                                                  {&inputs.dO, &attention_.dO}}};
  for (const Buffer& buffer : inputs_) {
    std::vector<char> staging(buffer.bytes(), '\xff');
    const char* begin = static_cast<const char*>(buffer.data());
    for (const auto& pair : all) {
      const HostTensor<float>* const host = pair.first;  // clang 14: a lambda cannot capture a structured binding
      const TensorRef* const tensor = pair.second;
      const char* data = static_cast<const char*>(tensor->data);
      if (data == nullptr || data < begin || data >= begin + buffer.bytes()) continue;  // lies in another buffer
      if (static_cast<std::int64_t>(host->values.size()) != tensor->elements()) {
        throw std::logic_error(std::string("input ") + tensor->name + " does not have the problem's shape");
      }
      char* first = staging.data() + (data - begin);
      for_each_element(tensor->shape, tensor->stride, [&](std::size_t dense, std::int64_t offset) {
        store(tensor->dtype, first + offset * size_of(tensor->dtype), host->values[dense]);
      });
    }
    device_.upload(buffer.data(), staging.data(), staging.size());
  }
}

void Runner::begin() {
  last_run = {variant_.name, attention_.problem, pass_, tiles_, attention_.limits.sm};
  for (Buffer& buffer : outputs_) buffer.poison();
  for (Buffer& buffer : workspaces_) buffer.poison();
  order_tiles(pass_);
  if (pass_ == Pass::backward) order_tiles(Pass::forward);
}

void Runner::launch(Pass pass) {
  if (variant_.tiles != nullptr) {
    attention_.tiles = *chosen_tiles(pass);
    attention_.order = orders_[pass].tensor;
  }
  launch_pass(variant_, attention_, pass);
}

double Runner::enqueue(Pass pass) {
  const auto start = std::chrono::steady_clock::now();
  launch(pass);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void Runner::run() {
  begin();
  device_.run([&] {
    if (pass_ == Pass::backward) launch(Pass::forward);
    const double ms = enqueue(pass_);
    if (!first_enqueue_ms_) first_enqueue_ms_ = ms;
  });
}

Timing Runner::time(int iterations, bool cold_l2) {
  run();
  std::vector<double> enqueue_ms;
  Timing timing = device_.time([&] { enqueue_ms.push_back(enqueue(pass_)); }, iterations, cold_l2);
  timing.enqueue_ms = median(enqueue_ms);
  timing.first_enqueue_ms = *first_enqueue_ms_;
  return timing;
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
  const auto fetch = [&](const TensorRef& tensor) {
    HostTensor<float> host(tensor.shape);
    // One copy of the whole buffer: packed tensors lie between their neighbours.
    for (const Buffer& buffer : outputs_) {
      const char* begin = static_cast<const char*>(buffer.data());
      const char* data = static_cast<const char*>(tensor.data);
      if (data < begin || data >= begin + buffer.bytes()) continue;
      std::vector<char> staging(buffer.bytes());
      device_.download(staging.data(), buffer.data(), staging.size());
      const char* first = staging.data() + (data - begin);
      for_each_element(tensor.shape, tensor.stride, [&](std::size_t dense, std::int64_t offset) {
        host.values[dense] = load(tensor.dtype, first + offset * size_of(tensor.dtype));
      });
    }
    return host;
  };
  Results<float> results{fetch(attention_.O), fetch(attention_.L), {}, {}, {}};
  if (pass_ == Pass::backward) {
    results.dQ = fetch(attention_.dQ);
    results.dK = fetch(attention_.dK);
    results.dV = fetch(attention_.dV);
    if (attention_.dBias.exists()) results.dBias = fetch(attention_.dBias);
  }
  return results;
}

std::size_t Runner::workspace_bytes() const {
  std::size_t sum = 0;
  for (const Buffer& buffer : workspaces_) sum += buffer.bytes();
  for (const Buffer& buffer : zeroed_) sum += buffer.bytes();
  return sum;
}

}  // namespace flash
