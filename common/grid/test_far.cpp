// Tensors of more than 2^32 elements: an offset in 32 bits, signed or not, reads or writes another row. On the simulator the same
// test runs at a small size.
#include "common/attention/registry.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/runner.hpp"
#include "common/harness/select.hpp"
#include "common/machine/host_memory.hpp"
#include "common/machine/isa/float16.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

namespace flash::grid {
namespace {

/// Normal random numbers in which all large inputs repeat. An odd length: two rows a power of two apart differ.
constexpr std::int64_t period = (1 << 22) - 3;

/// A tensor on the device, in the problem's layout. Only its last head, where offsets are largest, is looked at: a row that is written
/// elsewhere is missing there.
struct FarTensor {
  TensorRef ref;
  Buffer buffer;

  FarTensor(const char* name, Dtype dtype, const std::array<std::int64_t, 4>& shape, const std::array<std::int64_t, 4>& stride)
      : ref{nullptr, name, dtype, shape, stride}, buffer(device(), static_cast<std::size_t>(ref.elements() * size_of(dtype))) {
    ref.data = buffer.data();
  }

  /// The offset of a row of the last head.
  std::int64_t offset(std::int64_t row) const {
    return (ref.shape[0] - 1) * ref.stride[0] + (ref.shape[1] - 1) * ref.stride[1] + row * ref.stride[2];
  }

  /// Element `offset` of an input, wherever it lies in memory.
  float value(std::int64_t offset) const {
    static const std::vector<float> noise = [] {
      std::mt19937_64 bits(64);
      std::normal_distribution<float> normal;
      std::vector<float> all(static_cast<std::size_t>(period));
      for (float& value : all) value = normal(bits);
      return all;
    }();
    return noise[static_cast<std::size_t>((offset + 9973 * std::string_view(ref.name).back()) % period)];
  }

  void fill() const {
    const std::int64_t bytes = size_of(ref.dtype);
    std::vector<char> part(static_cast<std::size_t>(period * bytes));
    for (std::int64_t i = 0; i < period; ++i) store(ref.dtype, part.data() + i * bytes, value(i));
    for (std::int64_t begin = 0; begin < ref.elements(); begin += period) {
      const std::int64_t count = std::min(period, ref.elements() - begin);
      device().upload(static_cast<char*>(ref.data) + begin * bytes, part.data(), static_cast<std::size_t>(count * bytes));
    }
  }

  /// All rows, as fill() made them.
  HostTensor<float> filled_head() const {
    HostTensor<float> host({1, 1, ref.shape[2], ref.shape[3]});
    for (std::int64_t row = 0; row < ref.shape[2]; ++row) {
      for (std::int64_t c = 0; c < ref.shape[3]; ++c) host(0, 0, row, c) = round_to(ref.dtype, value(offset(row) + c));
    }
    return host;
  }

  /// Some rows from the device; the others stay 0.
  HostTensor<float> fetch(const std::vector<int>& rows) const {
    HostTensor<float> host({1, 1, ref.shape[2], ref.shape[3]});
    const std::int64_t bytes = size_of(ref.dtype);
    std::vector<char> part(static_cast<std::size_t>(ref.shape[3] * bytes));
    for (const int row : rows) {
      device().download(part.data(), static_cast<const char*>(ref.data) + offset(row) * bytes, part.size());
      for (std::int64_t c = 0; c < ref.shape[3]; ++c) host(0, 0, row, c) = load(ref.dtype, part.data() + c * bytes);
    }
    return host;
  }
};

/// The first and the last rows.
std::vector<int> both_ends(int size) {
  std::vector<int> rows;
  for (int row = 0; row < size; ++row) {
    if (row < 8 || row >= size - 24) rows.push_back(row);
  }
  return rows;
}

class FarProblem {
 public:
  FarProblem(const FullProblem& problem, Pass pass) : p_(problem) {
    const std::array<std::int64_t, 4> L{p_.B, p_.H, p_.Nq, 1};
    tensors_.try_emplace("L", "L", Dtype::fp32, L, dense_strides(L));
    for (const char* name : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}) {
      if (pass == Pass::forward && name[0] == 'd') continue;
      const char letter = std::string_view(name).back();
      const Role role = letter == 'K' || letter == 'V' ? Role::k : Role::q;
      tensors_.try_emplace(name, name, p_.dtype, shape_of(p_, role), placement_of(p_, role).stride);
    }
    FullProblem one = p_;  // the last head by itself
    one.B = one.H = one.Hkv = 1;
    one.layout = Layout::bhnd;
    slice_ = {0, 0, both_ends(p_.Nq), both_ends(p_.Nk)};
    Inputs inputs;
    for (const auto& [name, tensor] : {std::pair{"Q", &inputs.Q}, {"K", &inputs.K}, {"V", &inputs.V}, {"dO", &inputs.dO}}) {
      if (tensors_.count(name) == 0) continue;
      tensors_.at(name).fill();
      *tensor = tensors_.at(name).filled_head();
    }
    for (const Pass each : {Pass::forward, pass})
      checkers_.try_emplace(each, one, inputs, each, Sample{.whole = false, .slices = {slice_}});
  }

  /// In GPU memory, with what the variants of the stage want besides.
  static double bytes(const FullProblem& p, Pass pass) {
    const double q = 1.0 * p.B * p.H * p.Nq * p.d, k = 1.0 * p.B * p.Hkv * p.Nk * p.d;
    double workspaces = 0;
    for (const Variant& variant : variants()) {
      double sum = 0;
      for (const WorkspaceSpec& spec : workspaces_of(variant, p, pass))
        sum += static_cast<double>(TensorRef{.shape = spec.shape}.elements() * size_of(spec.dtype));
      workspaces = std::max(workspaces, sum);
    }
    return static_cast<double>(size_of(p.dtype)) * (pass == Pass::backward ? 4 * q + 4 * k : 2 * q + 2 * k) + workspaces;
  }

  /// Both passes of the variant, if it has two.
  void check(const Variant& variant) {
    Attention a;
    a.problem = p_;
    a.limits = device().limits();
    a.Q = ref("Q"), a.K = ref("K"), a.V = ref("V"), a.O = ref("O"), a.L = ref("L");
    const bool backward = variant.backward != nullptr;
    if (backward) a.dO = ref("dO"), a.dQ = ref("dQ"), a.dK = ref("dK"), a.dV = ref("dV");
    const Pass pass = backward ? Pass::backward : Pass::forward;
    last_run = LastRun{.variant = variant.name, .problem = p_, .pass = pass, .tiles = {}, .sm = a.limits.sm};
    std::vector<Buffer> poisoned, zeroed;
    a.workspaces = make_workspaces(device(), variant, p_, pass, poisoned, zeroed);
    for (Buffer& buffer : poisoned) buffer.poison();
    for (const char* output : {"O", "L", "dQ", "dK", "dV"}) {
      if (tensors_.count(output) > 0) tensors_.at(output).buffer.poison();
    }
    device().run([&] {
      for (const Pass each : {Pass::forward, Pass::backward}) {
        if (each == Pass::backward && !backward) continue;
        a.tiles = choose_tiles(variant, p_, each, a.limits, {}).value_or(Tiles{});
        launch_pass(variant, a, each);
      }
    });
    const auto fetch = [&](const char* name, const std::vector<int>& rows) { return tensors_.at(name).fetch(rows); };
    Results<float> got{fetch("O", slice_.queries), fetch("L", slice_.queries), {}, {}, {}};
    if (backward) {
      got.dQ = fetch("dQ", slice_.queries);
      got.dK = fetch("dK", slice_.keys);
      got.dV = fetch("dV", slice_.keys);
    }
    // D and l are sums over up to 262,200 keys, and their error is the same in all rows that are compared: more than the tolerance
    // of a few rows foresees. A wrong offset is off by the numbers themselves.
    constexpr double long_sums = 64, wrong_numbers = 0.05;
    for (const TensorCheck& tensor : checkers_.at(pass).check(got).tensors) {
      CHECK_MESSAGE((tensor.max_abs <= long_sums * tensor.tolerance && tensor.rel_l2 <= wrong_numbers),
                    std::string(variant.name)
                        << " on " << describe(p_) << ", " << tensor.tensor << ": relative L2 " << tensor.rel_l2);
    }
  }

 private:
  const TensorRef& ref(const char* name) const { return tensors_.at(name).ref; }

  FullProblem p_;
  Sample::Slice slice_;
  std::map<std::string, FarTensor> tensors_;
  std::map<Pass, Checker> checkers_;
};

}  // namespace

// With rows as the second axis a row's offset in its batch exceeds 2^31, and so does a batch's.
TEST_CASE("far: many queries and few keys, then few and many, on a GPU beyond 2^32 elements") {
  const bool gpu = device().info().kind == Backend::gpu;
  const int many = gpu ? (1 << 18) + 56 : 35, few = 11;
  bool any_backward = false;
  for (const Variant& variant : variants()) any_backward = any_backward || variant.backward != nullptr;
  const Pass pass = any_backward ? Pass::backward : Pass::forward;
  for (const bool tall : {true, false}) {
    FullProblem problem;
    problem.B = 2;
    problem.H = problem.Hkv = gpu ? 128 : 2;
    problem.Nq = tall ? many : few;
    problem.Nk = tall ? few : many;
    problem.d = gpu ? 64 : 24;
    problem.scale = default_scale(problem.d);
    problem.layout = Layout::bnhd;
    problem.dtype = variants().front().dtypes.front();
    const double needed = FarProblem::bytes(problem, pass) + 2e9;
    if (gpu && needed > static_cast<double>(device().info().memory_free)) {
      skip("needs " + bytes_text(needed) + " of GPU memory, " + bytes_text(static_cast<double>(device().info().memory_free)) +
           " are free");
      return;
    }
    FarProblem far(problem, pass);
    for (const Variant& variant : variants_for(problem)) far.check(variant);
  }
}

}  // namespace flash::grid
