// Shuffles, votes, reductions, barriers, atomics, bits.
#include "common/machine/test/expectations.hpp"

#include <cmath>
#include <cstdint>

namespace flash {
namespace {

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

Words acquire_release(const Words& in, int thread) { return {static_cast<unsigned>(thread) + at(in, thread) % 1000u - 5u}; }

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

}  // namespace

const std::map<std::string, Expectation>& warp_expectations() {
  static const std::map<std::string, Expectation> all = {
      {"shuffles", shuffles}, {"wide_shuffle", wide_shuffle}, {"partial_masks", partial_masks},
      {"votes", votes},       {"reductions", reductions},     {"barriers", barriers},
      {"atomics", atomics},   {"bits", bit_functions},        {"acquire_release", acquire_release},
  };
  return all;
}

}  // namespace flash
