// TMA, mbarriers, named barriers, wgmma.
#include "common/machine/test/expectations.hpp"

namespace flash {
namespace {

float small(unsigned word) { return static_cast<float>(word % 16u) - 8.0f; }

/// Half `i` of the input.
unsigned half(const Words& in, int i) { return at(in, i / 2) >> 16 * (i % 2) & 0xFFFFu; }

/// Word `w` of a panel that was loaded from (head, row, col) of [1, 2, 12, 72]: chunk c of row r lies at chunk c ^ r % 8.
unsigned panel_word(const Words& in, int w, int head, int row, int col) {
  const int r = w / 32, c = (w % 32 / 4 ^ r % 8) * 8 + w % 4 * 2;
  const auto element = [&](int y, int x) {
    return y < 0 || y >= 12 || x < 0 || x >= 72 ? 0u : half(in, (head * 12 + y) * 72 + x);
  };
  return element(row + r, col + c) | element(row + r, col + c + 1) << 16;
}

Words tma_load(const Words& in, int thread) {
  Words words;
  for (int i = 16 * thread; i < 16 * thread + 16; ++i)
    words.push_back(i < 512 ? panel_word(in, i, 1, 3, 16) : panel_word(in, i - 512, 0, -2, -8));
  return words;
}

Words tma_store(const Words& in, int thread) {
  Words words;
  for (int i = 5 * thread; i < 5 * thread + 5; ++i) {
    const int row = i / 20, col = i % 20 * 2;
    words.push_back(at(in, 32 * row + (col / 8 ^ row % 8) * 4 + col % 8 / 2));
  }
  return words;
}

Words bulk(const Words& in, int thread) {
  Words words;
  for (int i = 4 * thread; i < 4 * thread + 4; ++i)
    words.push_back(bits((i < 128 ? 3.0f : 2.0f) * small(at(in, i < 128 ? i : i + 384))));
  return words;
}

Words passed_rows(const Words& in, int thread) {
  unsigned sum = 0;
  for (int use = 0; use < 12 && thread >= 32; ++use) sum = 3u * sum + at(in, 32 * use + 63 - thread);
  return {sum};
}

/// Words 4 thread to 4 thread + 3: row 7 - thread % 8 of matrix m; its word t comes from lane 4 row + t.
Words stmatrix(const Words& in, int thread) {
  const int warp = thread / 32 * 32, m = thread % 32 / 8, row = 7 - thread % 8;
  Words words;
  for (int t = 0; t < 4; ++t) words.push_back(at(in, 64 * m + warp + 4 * row + t));
  return words;
}

Words elect(const Words&, int) { return {1}; }
Words setmaxnreg(const Words& in, int thread) { return {at(in, thread) + 1u}; }

template <int N>
Words wgmma(const Words& in, int thread) {
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  Words words;
  for (int i = 0; i < N / 2; ++i) {
    const int row = 16 * warp + g + (i % 4 < 2 ? 0 : 8), col = 8 * (i / 4) + 2 * t + i % 2;
    float sum = 0;
    for (int k = 0; k < 64; ++k)
      sum += small(at(in, (37 * row + 11 * k) % 1024)) * small(at(in, (500 + 37 * col + 11 * k) % 1024));
    words.push_back(bits(3.0f * sum));
  }
  return words;
}

/// Words 0 to 128 * 96 - 1: S of three tiles of keys, thread by thread; then Q [64, 64] and K [150, 64] in fp16, then zeros.
Words ring(const Words& in, int thread) {
  constexpr int sums = 128 * 96, halves = 64;
  const auto number = [&](int row, int col) { return small(at(in, (row * halves + col) % 1024)); };  // rows of Q, then of K
  const auto fp16 = [&](int i) {  // of a whole number from -8 to 7
    const float x = number(0, i);
    if (x == 0) return 0u;
    return (bits(x) >> 16 & 0x8000u) | ((bits(x) >> 13 & 0x3FFFFu) - (112u << 10));
  };
  Words words;
  for (int i = 120 * thread; i < 120 * thread + 120; ++i) {
    if (i >= sums) {
      const int first = 2 * (i - sums);
      words.push_back(first < (64 + 150) * halves ? fp16(first) | fp16(first + 1) << 16 : 0u);
      continue;
    }
    const int owner = i / 96, tile = i % 96 / 32, r = i % 32;
    const int row = owner / 32 * 16 + owner % 32 / 4 + (r % 4 < 2 ? 0 : 8),
              key = 64 * tile + r / 4 * 8 + 2 * (owner % 4) + r % 2;
    float sum = 0;
    for (int k = 0; k < halves && key < 150; ++k) sum += number(row, k) * number(64 + key, k);
    words.push_back(bits(sum));
  }
  return words;
}

}  // namespace

const std::map<std::string, Expectation>& hopper_expectations() {
  static const std::map<std::string, Expectation> all = {
      {"tma_load", tma_load},
      {"tma_store", tma_store},
      {"bulk", bulk},
      {"mbarrier_ring", passed_rows},
      {"named_barrier", passed_rows},
      {"stmatrix_x4", stmatrix},
      {"elect", elect},
      {"ring", ring},
      {"setmaxnreg", setmaxnreg},
      {"wgmma_k_k", wgmma<64>},
      {"wgmma_k_k_bf16", wgmma<32>},
      {"wgmma_k_mn", wgmma<80>},
      {"wgmma_mn_k", wgmma<96>},
      {"wgmma_mn_mn", wgmma<64>},
      {"wgmma_mn_mn_bf16", wgmma<128>},
      {"wgmma_registers_k", wgmma<96>},
      {"wgmma_registers_mn", wgmma<128>},
      {"wgmma_registers_mn_bf16", wgmma<80>},
  };
  return all;
}

}  // namespace flash
