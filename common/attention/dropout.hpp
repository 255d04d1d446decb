// Dropout of attention weights: which of them a run drops. The random numbers are a function of the seed and of where a weight is, so
// that a kernel of any tile size draws the same ones, in any order and in both passes. Plain C++, read by the host compiler and by nvcc.
#pragma once

#include "common/attention/problem.hpp"

#include <cmath>
#include <cstdint>

namespace flash {

/// Four words of 32 bits.
struct FourWords {
  std::uint32_t word[4];
};

/// Philox4x32-10 (Salmon and others, 2011): scrambles a counter under a key of 64 bits. A round multiplies two of the words, which
/// spreads each over 64 bits, and mixes the halves with the other two words and with the key; the key then advances.
FLASH_HOST_DEVICE inline FourWords philox(FourWords counter, std::uint64_t key) {
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
#ifdef __CUDACC__
#pragma unroll 5  // not 10: calls without a loop between them run side by side, and take registers that the kernels do not have
#endif
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t(&c)[4] = counter.word;
    const std::uint64_t left = std::uint64_t{0xD2511F53} * c[0], right = std::uint64_t{0xCD9E8D57} * c[2];
    counter = {{static_cast<std::uint32_t>(right >> 32) ^ c[1] ^ key0, static_cast<std::uint32_t>(right),
                static_cast<std::uint32_t>(left >> 32) ^ c[3] ^ key1, static_cast<std::uint32_t>(left)}};
    key0 += 0x9E3779B9, key1 += 0xBB67AE85;
  }
  return counter;
}

/// (9.11)  Z_ij, ready to be drawn. `head` counts over all batches, i and j from a sequence's first row. In a ragged batch the
/// sequences take the place of batches: each draws what it would as an element of a padded batch.
struct DropMask {
  /// Four pairs share a call, a word each: two neighbouring queries with two keys that are so many apart. The layouts of chapters
  /// 06 and 07 give such four to one thread.
  static constexpr int APART = 16;

  std::uint64_t seed;
  std::uint32_t threshold;  ///< words below it drop their weight
  float kept;               ///< 1 / (1 - p)

  explicit DropMask(const Dropout& dropout)
      : seed(dropout.seed),
        threshold(static_cast<std::uint32_t>(std::ceil(static_cast<double>(dropout.probability) * 4294967296.0))),
        kept(static_cast<float>(1.0 / (1.0 - static_cast<double>(dropout.probability)))) {}

  /// The words of query i and key j and of the three pairs that share their call.
  FLASH_HOST_DEVICE FourWords draw(int head, int i, int j) const {
    const auto u = [](int n) { return static_cast<std::uint32_t>(n); };
    return philox({{u(j & ~APART), u(i / 2), u(head), 0}}, seed);
  }

  /// The factor of query i and key j, of which only the places within the four matter.
  FLASH_HOST_DEVICE float factor(const FourWords& drawn, int i, int j) const {
    // Chosen without an index, which would put the four words into local memory.
    const bool second_query = i % 2 != 0, second_key = (j & APART) != 0;
    const std::uint32_t first = second_query ? drawn.word[2] : drawn.word[0],
                        second = second_query ? drawn.word[3] : drawn.word[1];
    return (second_key ? second : first) < threshold ? 0.0f : kept;
  }

  /// The same, drawn for this pair alone.
  FLASH_HOST_DEVICE float operator()(int head, int i, int j) const { return factor(draw(head, i, j), i, j); }
};

}  // namespace flash
