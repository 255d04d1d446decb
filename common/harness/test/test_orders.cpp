// A fast kernel rounds in another order than the naive implementation, and has to pass all the same: here is one, in plain C++.
//
// FlashAttention-2 over tiles of 16 keys in 16 bits: the exponential of a score minus the running maximum is rounded and not the
// probability; sums are truncated as tensor cores do; exp2 with the scale folded in; P and dS of the backward pass are rounded.
#include "common/harness/inputs.hpp"
#include "common/isa/float16.hpp"
#include "common/reference/reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace flash {
namespace {

constexpr int Bc = 16;
constexpr float infinity = std::numeric_limits<float>::infinity();

/// a + b without its last bits: towards zero, as tensor cores add.
float truncated_sum(float a, double b) {
  const float nearest = static_cast<float>(a + b);
  if (std::abs(static_cast<double>(nearest)) <= std::abs(a + b)) return nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - 1);  // the next number towards zero
}

/// x . y of rows in 16 bits, in steps of 16 terms.
float dot(const float* x, const float* y, int d) {
  float sum = 0;
  for (int c0 = 0; c0 < d; c0 += 16) {
    double part = 0;
    for (int c = c0; c < std::min(d, c0 + 16); ++c) part += static_cast<double>(x[c]) * static_cast<double>(y[c]);
    sum = truncated_sum(sum, part);
  }
  return sum;
}

/// sum += w rows, with weights in 16 bits.
void add_products(const float* weights, const float* rows, int count, int d, float* sum) {
  for (int c = 0; c < d; ++c) {
    double part = 0;
    for (int j = 0; j < count; ++j) part += static_cast<double>(weights[j]) * static_cast<double>(rows[j * d + c]);
    sum[c] = truncated_sum(sum[c], part);
  }
}

void forward_row(const FullProblem& p, const Inputs& in, int h, int i, Results<float>& out) {
  const float log2e = 1.44269504f, c2 = p.scale * log2e;
  float m = -infinity, l = 0;
  std::vector<float> O(static_cast<std::size_t>(p.d), 0.0f);
  for (int j0 = 0; j0 < p.end_key(i); j0 += Bc) {
    const int count = std::min(Bc, p.end_key(i) - j0);
    float P[Bc], largest = m;
    for (int j = 0; j < count; ++j) {
      P[j] = dot(&in.Q(0, h, i, 0), &in.K(0, h, j0 + j, 0), p.d);
      largest = std::max(largest, P[j]);
    }
    const float alpha = std::exp2((m - largest) * c2);
    m = largest;
    l *= alpha;
    for (float& value : O) value *= alpha;
    for (int j = 0; j < count; ++j) {
      P[j] = std::exp2(std::fma(P[j], c2, -m * c2));
      l += P[j];
      P[j] = round_to(p.dtype, P[j]);
    }
    add_products(P, &in.V(0, h, j0, 0), count, p.d, O.data());
  }
  out.L(0, h, i, 0) = l > 0 ? m * p.scale + std::log(l) : -infinity;
  for (int c = 0; c < p.d; ++c) out.O(0, h, i, c) = l > 0 ? round_to(p.dtype, O[static_cast<std::size_t>(c)] * (1 / l)) : 0.0f;
}

void backward_row(const FullProblem& p, const Inputs& in, int h, int i, Results<float>& out) {
  const float log2e = 1.44269504f, c2 = p.scale * log2e, L2 = out.L(0, h, i, 0) * log2e;
  float D = 0;
  for (int c = p.d; c-- > 0;) D += in.dO(0, h, i, c) * out.O(0, h, i, c);
  for (int j0 = 0; j0 < p.end_key(i); j0 += Bc) {
    const int count = std::min(Bc, p.end_key(i) - j0);
    float dS[Bc];
    for (int j = 0; j < count; ++j) {
      const float s = dot(&in.Q(0, h, i, 0), &in.K(0, h, j0 + j, 0), p.d);
      const float dP = dot(&in.dO(0, h, i, 0), &in.V(0, h, j0 + j, 0), p.d);
      const float P = std::exp2(std::fma(s, c2, -L2)), P16 = round_to(p.dtype, P);
      dS[j] = round_to(p.dtype, P * (dP - D));
      add_products(&P16, &in.dO(0, h, i, 0), 1, p.d, &out.dV(0, h, j0 + j, 0));
      add_products(&dS[j], &in.Q(0, h, i, 0), 1, p.d, &out.dK(0, h, j0 + j, 0));
    }
    add_products(dS, &in.K(0, h, j0, 0), count, p.d, &out.dQ(0, h, i, 0));
  }
}

Results<float> fast_attention(const FullProblem& p, const Inputs& inputs) {
  Results<float> out;
  out.O = out.dQ = HostTensor<float>({p.B, p.H, p.Nq, p.d}, 0.0f);
  out.L = HostTensor<float>({p.B, p.H, p.Nq, 1}, 0.0f);
  out.dK = out.dV = HostTensor<float>({p.B, p.H, p.Nk, p.d}, 0.0f);
  for (int h = 0; h < p.H; ++h) {
    for (int i = 0; i < p.Nq; ++i) {
      forward_row(p, inputs, h, i, out);
      backward_row(p, inputs, h, i, out);
    }
  }
  for (HostTensor<float>* const scaled : {&out.dQ, &out.dK}) {
    for (float& value : scaled->values) value = round_to(p.dtype, value * p.scale);
  }
  for (float& value : out.dV.values) value = round_to(p.dtype, value);
  return out;
}

void passes_on_every_kind_of_input(Dtype dtype) {
#ifdef FLASH_ASAN
  const std::vector<std::uint64_t> seeds{1};  // ten times as slow, and other numbers take the same path
#else
  const std::vector<std::uint64_t> seeds{1, 2};
#endif
  for (const InputKind kind : {InputKind::normal, InputKind::ones, InputKind::identity, InputKind::ramp, InputKind::large}) {
    for (const auto& [Nq, Nk, d] : {std::array{1, 1, 1},
                                    {1, 1, 128},
                                    {1, 2, 1},
                                    {2, 3, 8},
                                    {3, 1, 64},
                                    {5, 100, 64},
                                    {100, 100, 64},
                                    {128, 128, 64},
                                    {33, 300, 16},
                                    {300, 33, 128},
                                    {90, 90, 256}}) {
      for (const bool causal : {false, true}) {
        FullProblem p;
        p.H = p.Hkv = 2;
        p.Nq = Nq, p.Nk = Nk, p.d = d;
        p.scale = default_scale(d);
        p.causal = causal;
        p.dtype = dtype;
        for (const std::uint64_t seed : seeds) {
          const Inputs inputs = make_inputs(p, kind, seed, Pass::backward);
          const CheckReport report = check_results(p, inputs, Pass::backward, fast_attention(p, inputs), Sample{});
          for (const TensorCheck& t : report.tensors) {
            CHECK_MESSAGE(t.passed, describe(p) << ", input " << to_string(kind) << ", seed " << seed << ": " << t.tensor
                                                << " is off by " << t.max_abs << " > " << t.tolerance << ", got " << t.worst.got
                                                << ", expected " << t.worst.expected);
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("orders: FlashAttention-2 in fp16 passes on every kind of input") { passes_on_every_kind_of_input(Dtype::fp16); }

TEST_CASE("orders: FlashAttention-2 in bf16 passes on every kind of input") { passes_on_every_kind_of_input(Dtype::bf16); }

}  // namespace flash
