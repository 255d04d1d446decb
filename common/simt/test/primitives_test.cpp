// Every primitive on the simulator against expectations that are written down here for each lane, from the descriptions in the CUDA
// Programming Guide and the PTX ISA; under every order of the threads.
#include "common/simt/test/primitives.hpp"
#include "common/simt/options.hpp"
#include "common/simt/test/random_words.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <map>
#include <string>

namespace flash {
namespace {

using Words = std::vector<unsigned>;

/// The expected output words of one thread.
using Expectation = Words (*)(const Words& in, int thread);

unsigned bits(float x) { return std::bit_cast<unsigned>(x); }
unsigned at(const Words& in, int i) { return in[static_cast<std::size_t>(i)]; }

/// f(lane's input) of the 32 lanes of the thread's warp.
template <class F>
void for_warp(const Words& in, int thread, F f) {
  for (int lane = 0; lane < 32; ++lane) f(lane, at(in, thread / 32 * 32 + lane));
}

Words shuffles(const Words& in, int thread) {
  const int warp = thread / 32 * 32, lane = thread % 32;
  const auto x = [&](int source) { return at(in, warp + source); };
  return {x(5),
          x(lane / 8 * 8 + (lane + 3) % 8),
          lane >= 3 ? x(lane - 3) : x(lane),
          lane % 16 >= 1 ? x(lane - 1) : x(lane),
          lane + 7 < 32 ? x(lane + 7) : x(lane),
          lane % 4 < 2 ? x(lane + 2) : x(lane),
          x(lane ^ 21),
          bits(static_cast<float>(x(lane ^ 5) % 1000u))};
}

Words wide_shuffle(const Words& in, int thread) {
  const int source = thread / 32 * 32 + (thread % 32 ^ 9);
  const auto value = std::bit_cast<std::uint64_t>(std::ldexp(double{1} * at(in, source), 32) + at(in, source + 64));
  return {static_cast<unsigned>(value), static_cast<unsigned>(value >> 32)};
}

Words partial_masks(const Words& in, int thread) {
  const int warp = thread / 32 * 32, lane = thread % 32;
  if (lane < 16) return {at(in, warp + (lane + 4 < 16 ? lane + 4 : lane))};
  unsigned odd = 0;
  for (int other = 16; other < 32; ++other) odd += (at(in, warp + other) % 2u) << other;
  return {at(in, warp + (lane ^ 8)) + odd};
}

Words votes(const Words& in, int thread) {
  unsigned odd = 0, sevens = 0, same = 0;
  for_warp(in, thread, [&](int lane, unsigned x) {
    odd += (x % 2u) << lane;
    sevens += x % 40u == 7u;
    same += static_cast<unsigned>(x % 5u == at(in, thread) % 5u) << lane;
  });
  const bool all_same = same == 0xffffffffu;
  return {odd, sevens > 0, sevens == 0, same, all_same ? same : 0u, all_same, 0xffffffffu + 1u};
}

Words reductions(const Words& in, int thread) {
  Words r = {0, 0xffffffffu, 0, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0, 0};
  for_warp(in, thread, [&](int, unsigned x) {
    const auto as_signed = [](unsigned v) { return static_cast<int>(v); };
    r[0] += x;
    r[1] = x < r[1] ? x : r[1];
    r[2] = x > r[2] ? x : r[2];
    r[3] = as_signed(x) < as_signed(r[3]) ? x : r[3];
    r[4] = as_signed(x) > as_signed(r[4]) ? x : r[4];
    r[5] &= x | 0x00ff00ffu;
    r[6] |= x & 0x0f0f0f0fu;
    r[7] ^= x;
  });
  return r;
}

Words barriers(const Words& in, int thread) {
  unsigned count = 0;
  for (int i = 0; i < 64; ++i) count += at(in, i) % 4u != 0;
  return {at(in, 63 - thread), count, 0, 1, at(in, (thread + 17) % 64) + 1u, 64010000u + static_cast<unsigned>(thread)};
}

Words atomics(const Words& in, int) {
  int sum = 0, largest = -1000, smallest = 1000;
  for (int i = 0; i < 64; ++i) {
    const int x = static_cast<int>(at(in, i) % 200u) - 100;
    sum += x;
    largest = x > largest ? x : largest;
    smallest = x < smallest ? x : smallest;
  }
  return {static_cast<unsigned>(sum),
          static_cast<unsigned>(largest),
          static_cast<unsigned>(smallest),
          48u,
          1u,
          191u,
          bits(16.5f),
          1077u};
}

Words bit_functions(const Words& in, int thread) {
  const unsigned x = at(in, thread), y = at(in, thread + 64);
  unsigned ones = 0, reversed = 0;
  for (int i = 0; i < 32; ++i) {
    ones += x >> i & 1u;
    reversed += (x >> i & 1u) << (31 - i);
  }
  const auto leading_zeros = [](unsigned v) {
    unsigned n = 0;
    while (n < 32 && (v >> (31 - n) & 1u) == 0) ++n;
    return n;
  };
  const auto first_set = [](unsigned v) {
    for (unsigned i = 0; i < 32; ++i) {
      if ((v >> i & 1u) != 0) return i + 1;
    }
    return 0u;
  };
  const unsigned left = x % 40u % 32u, right = y % 40u % 32u;
  const int larger = static_cast<int>(x) > static_cast<int>(y) ? static_cast<int>(x) : static_cast<int>(y);
  return {ones,
          leading_zeros(x >> (y % 33u == 32u ? 31u : y % 33u)),
          first_set(x << (y % 31u)),
          reversed,
          left == 0 ? y : y << left | x >> (32 - left),
          right == 0 ? x : x >> right | y << (32 - right),
          static_cast<unsigned>(larger) ^ (x < y ? x : y),
          bits(3.0f) + bits(1.0f)};
}

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

const std::map<std::string, Expectation> expectations = {
    {"shuffles", shuffles},
    {"wide_shuffle", wide_shuffle},
    {"partial_masks", partial_masks},
    {"votes", votes},
    {"reductions", reductions},
    {"barriers", barriers},
    {"atomics", atomics},
    {"bits", bit_functions},
    {"float16", float16},
    {"ldmatrix_x1", ldmatrix<1, false>},
    {"ldmatrix_x2", ldmatrix<2, false>},
    {"ldmatrix_x4", ldmatrix<4, false>},
    {"ldmatrix_x1_trans", ldmatrix<1, true>},
    {"ldmatrix_x2_trans", ldmatrix<2, true>},
    {"ldmatrix_x4_trans", ldmatrix<4, true>},
    {"mma_m16n8k8_f16", mma<8>},
    {"mma_m16n8k8_bf16", mma<8>},
    {"mma_m16n8k16_f16", mma<16>},
    {"mma_m16n8k16_bf16", mma<16>},
    {"cp_async", cp_async},
};

void check_all(const Options& options) {
  const Options before = simt::options();
  set_options(options);
  for (const Primitive& primitive : cpu_primitives()) {
    CAPTURE(primitive.name);
    const Expectation expectation = expectations.at(primitive.name);
    for (unsigned seed = 1; seed <= 5; ++seed) {
      const Words in = random_words(seed, primitive_inputs);
      Words out(static_cast<std::size_t>(primitive_threads * primitive.words), 0xdeadbeefu);
      primitive.launch(in.data(), out.data());
      for (int thread = 0; thread < primitive_threads; ++thread) {
        const Words expected = expectation(in, thread);
        REQUIRE(expected.size() == static_cast<std::size_t>(primitive.words));
        const auto first = out.begin() + thread * primitive.words;
        CAPTURE(thread);
        CHECK(Words(first, first + primitive.words) == expected);
      }
    }
  }
  set_options(before);
}

}  // namespace

TEST_CASE("primitives in forward order") { check_all({}); }
TEST_CASE("primitives in reverse order") { check_all({.order = Order::reverse}); }
TEST_CASE("primitives in random orders") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) check_all({.order = Order::random, .seed = seed});
}

}  // namespace flash
