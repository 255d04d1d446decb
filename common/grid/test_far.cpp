// Tensors of more than 2^32 elements: an offset in 32 bits, signed or not, reads or writes another row. On the simulator the same
// test runs at a small size.
#include "common/attention/registry.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/runner.hpp"
#include "common/machine/error.hpp"
#include "common/machine/isa/float16.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
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

  explicit FarTensor(const TensorRef& seen)
      : ref(seen), buffer(device(), static_cast<std::size_t>(ref.elements() * size_of(ref.dtype))) {
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
  FarProblem(const FullProblem& problem, Pass pass) : p_(problem), slice_{0, 0, both_ends(p_.Nq), both_ends(p_.Nk)} {
    FullProblem one = p_;  // the last head by itself
    one.B = one.H = one.Hkv = 1;
    one.layout = Layout::bhnd;
    Inputs inputs;
    each_tensor(p_, pass, [&](const ProblemTensor& each) {
      const FarTensor& tensor = tensors_.try_emplace(&each, each.kernel_view(p_)).first->second;
      if (each.input == nullptr) return;
      tensor.fill();
      inputs.*each.input = tensor.filled_head();
    });
    for (const Pass each : {Pass::forward, pass})
      checkers_.try_emplace(each, one, inputs, each, Sample{.whole = false, .slices = {slice_}});
  }

  /// Both passes of the variant, if it has two.
  void check(const Variant& variant) {
    Attention a;
    a.problem = p_;
    a.limits = device().limits();
    const bool backward = variant.backward != nullptr;
    const Pass pass = backward ? Pass::backward : Pass::forward;
    last_run = LastRun{.variant = variant.name, .problem = p_, .pass = pass, .tiles = {}, .sm = a.limits.sm};
    std::vector<Buffer> poisoned, zeroed;
    a.workspaces = make_workspaces(device(), variant, p_, pass, poisoned, zeroed);
    for (Buffer& buffer : poisoned) buffer.poison();
    for (auto& [each, tensor] : tensors_) {
      a.*each->on_device = tensor.ref;
      if (each->result != nullptr) tensor.buffer.poison();
    }
    device().run([&] {
      for (const Pass each : {Pass::forward, Pass::backward}) {
        if (each == Pass::backward && !backward) continue;
        a.tiles = plan_pass(variant, p_, each, a.limits).choice.tiles;
        launch_pass(variant, a, each);
      }
    });
    Results<float> got;
    each_tensor(p_, pass, [&](const ProblemTensor& each) {
      if (each.result != nullptr)
        got.*each.result = tensors_.at(&each).fetch(of_keys(each.role) ? slice_.keys : slice_.queries);
    });
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
  FullProblem p_;
  Sample::Slice slice_;
  std::map<const ProblemTensor*, FarTensor> tensors_;
  std::map<Pass, Checker> checkers_;
};

}  // namespace

// With rows as the second axis a row's offset in its batch exceeds 2^31, and so does a batch's.
TEST_CASE("far: many queries and few keys, then few and many, on a GPU beyond 2^32 elements") {
  const bool gpu = device().info().kind == Backend::gpu;
  const int many = gpu ? (1 << 18) + 56 : 35, few = 11, heads = gpu ? 128 : 2;
  const bool backward = std::ranges::any_of(variants(), [](const Variant& variant) { return variant.backward != nullptr; });
  const Pass pass = backward ? Pass::backward : Pass::forward;
  for (const bool tall : {true, false}) {
    FullProblem problem =
        problem_of({.B = 2, .H = heads, .Hkv = heads, .Nq = tall ? many : few, .Nk = tall ? few : many, .d = gpu ? 64 : 24});
    problem.layout = Layout::bnhd;
    try {
      for (const Variant& variant : variants()) check_memory(device().info(), variant, problem, pass, /*loaded=*/true);
    } catch (const DeviceError& error) {
      MESSAGE(std::string(error.what()));
      return;
    }
    FarProblem far(problem, pass);
    for (const Variant& variant : variants_for(problem)) far.check(variant);
  }
}

}  // namespace flash::grid
