// Tensors of more than 2^32 elements: an offset in 32 bits, signed or not, reads or writes another row. On the simulator the same
// test runs at a small size.
#include "common/base/memory.hpp"
#include "common/grid/problems.hpp"
#include "common/grid/support.hpp"
#include "common/harness/runner.hpp"
#include "common/harness/tiles.hpp"
#include "common/isa/float16.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

namespace flash::grid {
namespace {

/// Normal random numbers in which all large inputs repeat. An odd length: two rows a power of two apart differ.
constexpr std::int64_t period = (1 << 22) - 3;

const std::vector<float>& noise() {
  static const std::vector<float> values = [] {
    std::mt19937_64 bits(64);
    std::normal_distribution<float> normal;
    std::vector<float> all(static_cast<std::size_t>(period));
    for (float& value : all) value = normal(bits);
    return all;
  }();
  return values;
}

/// Element `offset` of the `number`-th input, wherever it lies in memory.
float input_value(int number, std::int64_t offset) {
  return noise()[static_cast<std::size_t>((offset + 9973 * number) % period)];
}

/// A tensor on the device, in the problem's layout.
struct FarTensor {
  TensorRef ref;
  Buffer buffer;

  FarTensor(const char* name, Dtype dtype, const std::array<std::int64_t, 4>& shape, const std::array<std::int64_t, 4>& stride)
      : ref{nullptr, name, dtype, shape, stride}, buffer(device(), static_cast<std::size_t>(ref.elements() * size_of(dtype))) {
    ref.data = buffer.data();
  }

  std::int64_t offset(int b, int h, std::int64_t row) const {
    return b * ref.stride[0] + h * ref.stride[1] + row * ref.stride[2];
  }

  void fill(int number) const {
    const std::int64_t bytes = size_of(ref.dtype);
    std::vector<char> part(static_cast<std::size_t>(period * bytes));
    for (std::int64_t i = 0; i < period; ++i) store(ref.dtype, part.data() + i * bytes, input_value(number, i));
    for (std::int64_t begin = 0; begin < ref.elements(); begin += period) {
      const std::int64_t count = std::min(period, ref.elements() - begin);
      device().upload(static_cast<char*>(ref.data) + begin * bytes, part.data(), static_cast<std::size_t>(count * bytes));
    }
  }

  /// All rows of one head, as fill() made them.
  HostTensor<float> filled_head(int number, int b, int h) const {
    HostTensor<float> host({1, 1, ref.shape[2], ref.shape[3]});
    std::size_t dense = 0;
    for (std::int64_t row = 0; row < ref.shape[2]; ++row) {
      for (std::int64_t c = 0; c < ref.shape[3]; ++c) {
        host.values[dense++] = round_to(ref.dtype, input_value(number, offset(b, h, row) + c));
      }
    }
    return host;
  }

  /// Some rows of one head from the device; the others stay 0.
  HostTensor<float> fetch(int b, int h, const std::vector<int>& rows) const {
    HostTensor<float> host({1, 1, ref.shape[2], ref.shape[3]});
    const std::int64_t bytes = size_of(ref.dtype);
    std::vector<char> part(static_cast<std::size_t>(ref.shape[3] * bytes));
    for (const int row : rows) {
      device().download(part.data(), static_cast<const char*>(ref.data) + offset(b, h, row) * bytes, part.size());
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

/// One head of the whole problem: checked as a problem of its own.
struct CheckedHead {
  int b, h;
  Sample::Slice slice;
  std::unique_ptr<Checker> forward, backward;  ///< of O and L; of all results, if there is a backward pass
};

class FarProblem {
 public:
  FarProblem(const FullProblem& problem, Pass pass) : p_(problem), backward_(pass == Pass::backward) {
    for (const char* name : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}) {
      if (!backward_ && name[0] == 'd') continue;
      const bool key = name[1] == 'K' || name[1] == 'V' || name[0] == 'K' || name[0] == 'V';
      const Role role = key ? Role::k : Role::q;
      tensors_.push_back(std::make_unique<FarTensor>(name, p_.dtype, shape_of(p_, role), placement_of(p_, role).stride));
    }
    const std::array<std::int64_t, 4> L{p_.B, p_.H, p_.Nq, 1};
    tensors_.push_back(std::make_unique<FarTensor>("L", Dtype::fp32, L, dense_strides(L)));
    for (const char* name : inputs_) {
      if (has(name)) tensor(name).fill(number(name));
    }
    add_head(p_.B - 1, p_.H - 1);  // where offsets are largest
    add_head(0, 1);                // what a wrapped offset would overwrite
  }

  static double bytes(const FullProblem& p, Pass pass) {
    const double q = 1.0 * p.B * p.H * p.Nq * p.d, k = 1.0 * p.B * p.Hkv * p.Nk * p.d;
    return static_cast<double>(size_of(p.dtype)) * (pass == Pass::backward ? 4 * q + 4 * k : 2 * q + 2 * k);
  }

  /// Both passes of the variant, if it has two.
  void check(const Variant& variant) {
    Attention a{.problem = p_,
                .Q = tensor("Q").ref,
                .K = tensor("K").ref,
                .V = tensor("V").ref,
                .bias = {nullptr, "bias", Dtype::fp32, {}, {}},
                .O = tensor("O").ref,
                .L = tensor("L").ref,
                .dO = {},
                .dQ = {},
                .dK = {},
                .dV = {},
                .dBias = {},
                .workspaces = {},
                .offsets = {},
                .order = {},
                .limits = device().limits(),
                .tiles = {}};
    const bool backward = variant.backward != nullptr;
    if (backward) {
      a.dO = tensor("dO").ref, a.dQ = tensor("dQ").ref, a.dK = tensor("dK").ref, a.dV = tensor("dV").ref;
    }
    const Pass pass = backward ? Pass::backward : Pass::forward;
    last_run = LastRun{.variant = variant.name, .problem = p_, .pass = pass, .tiles = {}, .sm = a.limits.sm};
    std::vector<Buffer> workspaces;
    for (const WorkspaceSpec& spec : workspaces_of(variant, p_, pass)) {
      TensorRef ref{nullptr, spec.name, spec.dtype, spec.shape, dense_strides(spec.shape)};
      workspaces.emplace_back(device(), static_cast<std::size_t>(ref.elements() * size_of(spec.dtype)));
      if (spec.zeroed) {
        device().upload(workspaces.back().data(), std::vector<char>(workspaces.back().bytes()).data(),
                        workspaces.back().bytes());
      } else {
        workspaces.back().poison();
      }
      ref.data = workspaces.back().data();
      a.workspaces.push_back(ref);
    }
    for (const auto& each : tensors_) {
      const std::string name = each->ref.name;
      if (std::find(std::begin(inputs_), std::end(inputs_), name) == std::end(inputs_)) each->buffer.poison();
    }
    device().run([&] {
      for (const Pass each : {Pass::forward, Pass::backward}) {
        if (each == Pass::backward && !backward) continue;
        a.tiles = choose_tiles(variant, p_, each, a.limits, {}).value_or(Tiles{});
        (each == Pass::forward ? variant.forward : variant.backward)(a);
      }
    });
    for (const CheckedHead& head : heads_) {
      const auto fetch = [&](const char* name, const std::vector<int>& rows) {
        return tensor(name).fetch(head.b, head.h, rows);
      };
      Results<float> got{fetch("O", head.slice.queries), fetch("L", head.slice.queries), {}, {}, {}};
      if (backward) {
        got.dQ = fetch("dQ", head.slice.queries);
        got.dK = fetch("dK", head.slice.keys);
        got.dV = fetch("dV", head.slice.keys);
      }
      // D and l are sums over up to 262,200 keys, and their error is the same in all rows that are compared: more than the tolerance
      // of a few rows foresees. A wrong offset is off by the numbers themselves.
      constexpr double long_sums = 64, wrong_numbers = 0.05;
      for (const TensorCheck& tensor : (backward ? head.backward : head.forward)->check(got).tensors) {
        CHECK_MESSAGE((tensor.max_abs <= long_sums * tensor.tolerance && tensor.rel_l2 <= wrong_numbers),
                      std::string(variant.name) << " on " << describe(p_) << ", batch " << head.b << ", head " << head.h << ", "
                                                << tensor.tensor << ": relative L2 " << tensor.rel_l2);
      }
    }
  }

 private:
  static constexpr const char* inputs_[] = {"Q", "K", "V", "dO"};

  static int number(const std::string& name) {
    return static_cast<int>(std::find(std::begin(inputs_), std::end(inputs_), name) - std::begin(inputs_));
  }
  bool has(const std::string& name) const { return backward_ || name != "dO"; }

  const FarTensor& tensor(const std::string& name) const {
    return **std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& each) { return each->ref.name == name; });
  }

  void add_head(int b, int h) {
    FullProblem one = p_;
    one.B = one.H = one.Hkv = 1;
    one.layout = Layout::bhnd;
    const auto filled = [&](const char* name) {
      return has(name) ? tensor(name).filled_head(number(name), b, h) : HostTensor<float>{};
    };
    const Inputs inputs{filled("Q"), filled("K"), filled("V"), filled("dO"), {}};
    const Sample::Slice slice{0, 0, both_ends(p_.Nq), backward_ ? both_ends(p_.Nk) : std::vector<int>{}};
    const Sample sample{.whole = false, .slices = {slice}};
    heads_.push_back({b, h, slice, std::make_unique<Checker>(one, inputs, Pass::forward, sample), nullptr});
    if (backward_) heads_.back().backward = std::make_unique<Checker>(one, inputs, Pass::backward, sample);
  }

  FullProblem p_;
  bool backward_;
  std::vector<std::unique_ptr<FarTensor>> tensors_;
  std::vector<CheckedHead> heads_;
};

/// Extra bytes that the variants of the stage want.
double workspace_bytes(const FullProblem& problem, Pass pass) {
  double most = 0;
  for (const Variant& variant : variants()) {
    double sum = 0;
    for (const WorkspaceSpec& spec : workspaces_of(variant, problem, pass)) {
      sum += static_cast<double>(size_of(spec.dtype)) *
             static_cast<double>(std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1}, std::multiplies<>{}));
    }
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

// With rows as the second axis a row's offset in its batch exceeds 2^31, and so does a batch's.
TEST_CASE("far: many queries and few keys, then few and many, on a GPU beyond 2^32 elements") {
  const bool gpu = device().info().kind == Backend::gpu;
  const int many = gpu ? (1 << 18) + 56 : sanitized() ? 35 : 300, few = 11;
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
    const double needed = FarProblem::bytes(problem, pass) + workspace_bytes(problem, pass) + 2e9;
    if (gpu && needed > static_cast<double>(device().info().memory_free)) {
      skip("needs " + bytes_text(needed) + " of GPU memory, " + bytes_text(static_cast<double>(device().info().memory_free)) +
           " are free");
      return;
    }
    FarProblem far(problem, pass);
    for (const Variant& variant : variants_for(problem)) {
      if (!refusal_on(variant, problem, device().limits()).empty()) {
        MESSAGE(std::string(variant.name) << " refuses " << describe(problem));
        continue;
      }
      far.check(variant);
    }
  }
}

}  // namespace flash::grid
