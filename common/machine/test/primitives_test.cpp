// Every primitive on the simulator, under every order of the threads, against what a GPU made of the same numbers.
#include "common/machine/test/primitives.hpp"
#include "common/machine/cpu/options.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <string>

namespace flash {
namespace {

void check_all(const Options& options) {
  const Options before = simt::options();
  set_options(options);
  for (const Primitive& primitive : cpu_primitives()) {
    CAPTURE(std::string(primitive.name));
    unsigned hash = 0;
    const unsigned seeds = primitive.threads == 64 ? 5 : 1;  // products of warpgroups take long
    for (unsigned seed = 1; seed <= seeds; ++seed) {
      const std::vector<unsigned> in = random_words(seed, primitive_inputs);
      std::vector<unsigned> out(static_cast<std::size_t>(primitive.threads * primitive.words), 0xdeadbeefu);
      primitive.launch(in.data(), out.data());
      for (const unsigned word : out) hash = std::rotl(hash ^ word, 15) * 0x9E3779B1u;
    }
    CHECK(hash == primitive.hash);
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
