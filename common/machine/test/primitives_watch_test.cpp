// Every primitive, watched: what it does is ordered, and it reads nothing that nobody wrote.
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/device.hpp"
#include "common/machine/test/primitives.hpp"

#include <doctest/doctest.h>

namespace flash {

TEST_CASE("primitives: no races, nothing unwritten") {
  REQUIRE(can_watch());
  const auto cpu = open_cpu();
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    for (const Primitive& primitive : cpu_primitives()) {
      CAPTURE(primitive.name);
      reset_findings();
      set_options({.order = order, .seed = 7, .watch = true});
      const std::vector<unsigned> in = random_words(1, primitive_inputs);
      const Buffer out(*cpu, static_cast<std::size_t>(primitive.threads * primitive.words) * sizeof(unsigned));
      primitive.launch(in.data(), static_cast<unsigned*>(out.data()));
      for (const Race& race : findings().races) FAIL_CHECK(sentence(race));
      for (const UnwrittenRead& read : findings().unwritten) FAIL_CHECK(sentence(read));
      CHECK(findings().complete);
      CHECK(findings().accesses > 0);
    }
  }
  set_options({});
}

}  // namespace flash
