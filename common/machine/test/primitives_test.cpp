// Every primitive on the simulator, under every order of the threads, against expectations that know nothing of the simulator.
#include "common/machine/test/primitives.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/test/expectations.hpp"

#include <doctest/doctest.h>

namespace flash {
namespace {

Expectation expectation_of(const std::string& name) {
  for (const auto* all : {&warp_expectations(), &tensor_expectations()}) {
    if (const auto found = all->find(name); found != all->end()) return found->second;
  }
  return hopper_expectations().at(name);
}

void check_all(const Options& options) {
  const Options before = simt::options();
  set_options(options);
  for (const Primitive& primitive : cpu_primitives()) {
    CAPTURE(primitive.name);
    const Expectation expectation = expectation_of(primitive.name);
    const unsigned seeds = primitive.threads == 64 ? 5 : 1;  // products of warpgroups take long
    for (unsigned seed = 1; seed <= seeds; ++seed) {
      const Words in = random_words(seed, primitive_inputs);
      Words out(static_cast<std::size_t>(primitive.threads * primitive.words), 0xdeadbeefu);
      primitive.launch(in.data(), out.data());
      for (int thread = 0; thread < primitive.threads; ++thread) {
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
