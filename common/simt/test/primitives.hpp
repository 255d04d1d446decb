// The list of primitive kernels, for the tests of both backends.
#pragma once

#include <vector>

namespace flash {

struct Primitive {
  const char* name;
  int words;                                          ///< of output for each of the 64 threads
  void (*launch)(const unsigned* in, unsigned* out);  ///< device pointers
  int least_sm = 75;
};

constexpr int primitive_threads = 64;
constexpr int primitive_inputs = 1024;

const std::vector<Primitive>& cpu_primitives();
const std::vector<Primitive>& gpu_primitives();

}  // namespace flash
