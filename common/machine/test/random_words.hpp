// Inputs for tests.
#pragma once

#include <random>
#include <vector>

namespace flash {

inline std::vector<unsigned> random_words(unsigned seed, int count) {
  std::mt19937 generator(seed);
  std::vector<unsigned> words(static_cast<std::size_t>(count));
  for (unsigned& word : words) word = static_cast<unsigned>(generator());
  return words;
}

}  // namespace flash
