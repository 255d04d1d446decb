// Every primitive on the simulator, under every order of the threads: what it wrote when each lane was last worked out by hand from the CUDA
// Programming Guide and the PTX ISA, and compared with a GPU (primitives_gpu_test.cpp).
#include "common/machine/test/primitives.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/test/random_words.hpp"

#include <doctest/doctest.h>

namespace flash {
namespace {

void check_all(const Options& options) {
  const Simulated chosen(options);
  for (const Primitive& primitive : cpu_primitives()) {
    CAPTURE(std::string(primitive.name));
    unsigned hash = 2166136261u;                             // FNV-1a, by words
    const unsigned seeds = primitive.threads == 64 ? 5 : 1;  // products of warpgroups take long
    for (unsigned seed = 1; seed <= seeds; ++seed) {
      const std::vector<unsigned> in = random_words(seed, primitive_inputs);
      std::vector<unsigned> out(static_cast<std::size_t>(primitive.threads * primitive.words), 0xdeadbeefu);
      primitive.launch(in.data(), out.data());
      for (const unsigned word : out) hash = (hash ^ word) * 16777619u;
    }
    CHECK(hash == primitive.hash);
  }
}

}  // namespace

TEST_CASE("primitives in forward order") { check_all({}); }
TEST_CASE("primitives in reverse order") { check_all({.order = Order::reverse}); }
TEST_CASE("primitives in random orders") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) check_all({.order = Order::random, .seed = seed});
}

}  // namespace flash
