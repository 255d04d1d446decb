// 16-bit floats, ldmatrix, mma, ex2, atomic_add4, cp.async.
#include "common/machine/test/expectations.hpp"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

/// Rounds to `mantissa` bits after the leading one and exponents from `least` on, in double arithmetic; overflows to infinity.
double rounded(double x, int mantissa, int least, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least);
  const double unit = std::ldexp(1.0, exponent - mantissa);
  const double result = std::nearbyint(x / unit) * unit;
  return std::abs(result) > largest ? std::copysign(INFINITY, x) : result;
}
double to_fp16(double x) { return rounded(x, 10, -14, 65504.0); }
double to_bf16(double x) { return rounded(x, 7, -126, std::ldexp(255.0, 120)); }

/// The bits of a number that fp16 has.
unsigned fp16_bits(double x) {
  const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
  x = std::abs(x);
  if (std::isinf(x)) return sign | 0x7c00u;
  if (x < std::ldexp(1.0, -14)) return sign | static_cast<unsigned>(std::ldexp(x, 24));
  const int exponent = std::ilogb(x);
  return sign | static_cast<unsigned>(exponent + 15) << 10 | (static_cast<unsigned>(std::ldexp(x, 10 - exponent)) & 0x3ffu);
}
unsigned bf16_bits(double x) { return bits(static_cast<float>(x)) >> 16; }

Words float16(const Words& in, int thread) {
  const float any = std::bit_cast<float>(at(in, thread)), y = static_cast<float>(at(in, thread + 64) % 1000u) / 7.0f;
  const double narrow = std::ldexp(double{y}, thread - 40);
  return {fp16_bits(to_fp16(narrow)),
          std::isnan(any) ? 0u : bf16_bits(to_bf16(double{any})),
          bits(static_cast<float>(to_fp16(narrow))),
          bits(static_cast<float>(to_fp16(double{y}))) ^ bits(static_cast<float>(to_fp16(-narrow))),
          fp16_bits(to_fp16(to_fp16(double{y}) + to_fp16(double{3.7f}))),
          bf16_bits(to_bf16(to_bf16(double{y}) * to_bf16(double{3.7f})))};
}

template <int Count, bool Trans>
Words ldmatrix(const Words&, int thread) {
  const unsigned g = static_cast<unsigned>(thread) % 32u / 4u, t = static_cast<unsigned>(thread) % 4u;
  Words r;
  for (unsigned m = 0; m < Count; ++m) {
    const auto element = [m](unsigned row, unsigned col) { return 64u * m + 8u * (7u - row) + col; };
    r.push_back(Trans ? element(2 * t, g) | element(2 * t + 1, g) << 16 : element(g, 2 * t) | element(g, 2 * t + 1) << 16);
  }
  return r;
}

template <int Depth>
Words mma(const Words& in, int thread) {
  const int g = thread % 32 / 4, t = thread % 4;
  const auto small = [&](int i) { return static_cast<float>(at(in, i) % 16u) - 8.0f; };
  Words r;
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? g : g + 8, col = 2 * t + (i & 1);
    float sum = small(384 + row * 8 + col);
    for (int k = 0; k < Depth; ++k) sum += small(row * Depth + k) * small(256 + k * 8 + col);
    r.push_back(bits(sum));
  }
  return r;
}

Words exp2_approx(const Words&, int) { return {1, bits(0.0f), bits(0.0f), bits(INFINITY), bits(INFINITY), 1}; }

Words tanh_approx(const Words&, int) { return {1, 1, bits(1.0f), bits(-1.0f), 1, 1}; }

Words atomic_add4(const Words& in, int thread) {
  const auto small = [&](int i) { return static_cast<float>(at(in, i) % 16u) - 8.0f; };
  const float x = small(thread), y = small(thread + 64);
  float sums[4] = {1.0f + x, 2.0f + y, 3.0f + (x + y), 4.0f + (x - y)};
  for (int other = 4 * thread; other < 4 * thread + 4 && other < 64; ++other) {
    sums[0] += small(other + 64);
    sums[1] += 1.0f;
    sums[2] -= small(other);
    sums[3] += 0.5f;
  }
  return {bits(sums[0]), bits(sums[1]), bits(sums[2]), bits(sums[3])};
}

Words cp_async(const Words& in, int thread) {
  const auto row = [&](int of) {
    Words r;
    for (int i = 0; i < 8; ++i) r.push_back(i == 7 && of % 2 == 0 ? 0u : at(in, 8 * of + i));
    for (int i = 0; i < 4; ++i) r.push_back(i < of % 5 ? at(in, 8 * of + i) : 0u);
    return r;
  };
  Words r = row((thread + 1) % 64);
  unsigned early = 0;
  for (int i = 0; i < 7; ++i) early += row(thread)[static_cast<std::size_t>(i)];
  r.push_back(early);
  return r;
}

}  // namespace

const std::map<std::string, Expectation>& tensor_expectations() {
  static const std::map<std::string, Expectation> all = {
      {"float16", float16},
      {"ldmatrix_x1", ldmatrix<1, false>},
      {"ldmatrix_x2", ldmatrix<2, false>},
      {"ldmatrix_x4", ldmatrix<4, false>},
      {"ldmatrix_x4_trans", ldmatrix<4, true>},
      {"mma_m16n8k8_f16", mma<8>},
      {"mma_m16n8k16_f16", mma<16>},
      {"mma_m16n8k16_bf16", mma<16>},
      {"exp2_approx", exp2_approx},
      {"tanh_approx", tanh_approx},
      {"atomic_add4", atomic_add4},
      {"cp_async", cp_async},
  };
  return all;
}

}  // namespace flash
