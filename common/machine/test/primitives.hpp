// The list of primitive kernels, for the tests of both backends.
#pragma once

#include <random>
#include <vector>

namespace flash {

struct Primitive {
  const char* name;
  int words;      ///< of output for each thread
  unsigned hash;  ///< of them, for the first seeds, where primitives_gpu_test.cpp finds no difference
  void (*launch)(const unsigned* in, unsigned* out);  ///< device pointers
  int least_sm = 75, most_sm = 1000;                  ///< GPUs that can run it
  int threads = 64;
};

constexpr int primitive_inputs = 1024;

inline std::vector<unsigned> random_words(unsigned seed, int count) {
  std::mt19937 generator(seed);
  std::vector<unsigned> words(static_cast<std::size_t>(count));
  for (unsigned& word : words) word = static_cast<unsigned>(generator());
  return words;
}

const std::vector<Primitive>& cpu_primitives();
const std::vector<Primitive>& gpu_primitives();

}  // namespace flash
