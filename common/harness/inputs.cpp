#include "common/harness/inputs.hpp"

#include "common/machine/isa/float16.hpp"
#include "common/reference/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace flash {
namespace {

/// Counter-based random bits: the i-th number of a stream depends on nothing but (stream, i). The mixing steps and constants are
/// those of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
std::uint64_t random_bits(std::uint64_t stream, std::uint64_t i) {
  std::uint64_t z = stream + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Box-Muller in double precision, two values from each 64 random bits, on all cores. std::normal_distribution would give other values with
/// another standard library.
void fill_normal(HostTensor<float>& tensor, Dtype dtype, std::uint64_t stream, float factor) {
  constexpr std::size_t part = 1 << 18;  // even
  std::vector<float>& values = tensor.values;
  parallel_for(static_cast<std::int64_t>((values.size() + part - 1) / part), [&](std::int64_t task) {
    const std::size_t begin = static_cast<std::size_t>(task) * part, end = std::min(values.size(), begin + part);
    for (std::size_t i = begin; i < end; i += 2) {
      const std::uint64_t bits = random_bits(stream, i / 2);
      const double u = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;  // in (0, 1]: its logarithm is finite
      const double angle = static_cast<double>(bits & 0xffffffffu) * 0x1p-32 * 2 * std::numbers::pi;
      const double radius = std::sqrt(-2 * std::log(u)) * static_cast<double>(factor);
      values[i] = round_to(dtype, static_cast<float>(radius * std::cos(angle)));
      if (i + 1 < end) values[i + 1] = round_to(dtype, static_cast<float>(radius * std::sin(angle)));
    }
  });
}

/// value(row, col) for every element of every (batch, head).
template <class Value>
void fill_rows(HostTensor<float>& tensor, Dtype dtype, Value&& value) {
  const std::int64_t rows = tensor.shape[2], cols = tensor.shape[3];
  for (std::int64_t n = 0; n < elements_of(tensor.shape); ++n)
    tensor.values[static_cast<std::size_t>(n)] = round_to(dtype, value(n / cols % rows, n % cols));
}

/// Press, Smith, Lewis: Train short, test long (ALiBi), ICLR 2022: a geometric sequence that starts at 2^(-8/H).
void fill_slopes(HostTensor<float>& slopes, int H) {
  for (std::size_t i = 0; i < slopes.values.size(); ++i) {
    const double h = static_cast<double>(static_cast<std::int64_t>(i) % slopes.shape[1]);
    slopes.values[i] = static_cast<float>(std::exp2(-8 * (h + 1) / H));
  }
}

}  // namespace

HostTensor<float> make_input(const FullProblem& problem, const ProblemTensor& which) {
  HostTensor<float> tensor(which.shape(problem));
  const Dtype dtype = which.dtype(problem);
  const InputKind kind = problem.input;
  const bool is_value = which.role == Role::v;
  const auto normal = [&](float factor) {
    fill_normal(tensor, dtype, random_bits(problem.seed, static_cast<std::uint64_t>(which.random_stream)), factor);
  };
  if (which.role == Role::bias && problem.bias == BiasKind::alibi) {
    fill_slopes(tensor, problem.H);
  } else if (which.role == Role::bias || which.backward || kind == InputKind::normal ||
             (kind == InputKind::large && is_value)) {
    normal(1);
  } else if (kind == InputKind::large) {
    normal(10);  // a score is a sum of d products of two normals, times scale = 1/sqrt(d): standard deviation 10^2
  } else if (is_value && kind != InputKind::ones) {
    fill_rows(tensor, dtype,
              [](std::int64_t j, std::int64_t c) { return static_cast<float>(j % 1024) + static_cast<float>(c) / 1000; });
  } else if (kind == InputKind::identity) {
    fill_rows(tensor, dtype, [&](std::int64_t i, std::int64_t c) { return i % problem.d == c ? 1.0f : 0.0f; });
  } else {
    fill_rows(tensor, dtype, [](std::int64_t, std::int64_t) { return 1.0f; });
  }
  return tensor;
}

Inputs make_inputs(const FullProblem& problem, Pass pass) {
  Inputs inputs;
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    if (each.input != nullptr) inputs.*each.input = make_input(problem, each);
  });
  return inputs;
}

}  // namespace flash
