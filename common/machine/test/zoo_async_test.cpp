// The simulator on every hazard of zoo_async_*.cuh: it names the line of each mistake, in every order of threads, and is silent about the twin.
#include "common/machine/cpu/findings.hpp"
#include "common/machine/device.hpp"
#include "common/machine/test/zoo.hpp"
#include "common/machine/test/zoo_async_copies.cuh"
#include "common/machine/test/zoo_async_loads.cuh"
#include "common/machine/test/zoo_async_rings.cuh"
#include "common/machine/test/zoo_async_wgmma.cuh"

#include <algorithm>
#include <new>

namespace flash {
namespace {

std::vector<AsyncCase> async_cases() {
  std::vector<AsyncCase> all;
  const auto add = [&](const char* file, std::vector<AsyncCase> cases) {
    for (AsyncCase& each : cases) {
      each.file = file;
      all.push_back(each);
    }
  };
  add("zoo_async_loads.cuh", load_cases());
  add("zoo_async_rings.cuh", ring_cases());
  add("zoo_async_copies.cuh", copy_cases());
  add("zoo_async_wgmma.cuh", wgmma_cases());
  return all;
}

/// Everything that a launch says, "" if nothing.
std::string said(void (*launch_case)(void*), Order order, std::uint64_t seed, bool watch = true) {
  set_options({.order = order, .seed = seed, .watch = watch});
  reset_findings();
  const std::unique_ptr<Device> device = open_cpu();
  const Buffer buffer(*device, sizeof(AsyncMemory));
  auto* const memory = static_cast<AsyncMemory*>(buffer.data());
  std::ranges::fill(memory->in, 0x3C003C00u);  // ones
  std::string text;
  try {
    launch_case(memory);
  } catch (const KernelError& error) {
    text += std::string(error.what()) + "\n";
  }
  const Findings found = findings();
  for (const Race& race : found.races) text += sentence(race) + "\n";
  for (const UnwrittenRead& read : found.unwritten) text += sentence(read) + "\n";
  set_options({});
  return text;
}

struct Seeded {
  Order order;
  std::uint64_t seed = 0;
};
constexpr Seeded orders[] = {{Order::forward}, {Order::reverse}, {Order::random, 1}, {Order::random, 2}, {Order::random, 3}};

}  // namespace

TEST_CASE("zoo: hazards of asynchronous copies and products") {
  const std::string folder = std::string(__FILE__).substr(0, std::string(__FILE__).rfind('/') + 1);
  for (const AsyncCase& each : async_cases()) {
    const std::string name = each.name;
    CAPTURE(name);
    for (const Seeded& run : orders) {
      const Order order = run.order;
      const std::uint64_t seed = run.seed;
      CAPTURE(static_cast<int>(order));
      CAPTURE(seed);
      CHECK(said(each.right, order, seed) == "");
      CHECK(said(each.right, order, seed, false) == "");
      if (each.wrong == nullptr) continue;
      const std::string all = said(each.wrong, order, seed);
      CHECK(all != "");
      if (order != Order::forward) continue;
      CAPTURE(all);
      const std::string text = name + ": " + all.substr(0, all.find('\n'));  // for docs/lab/zoo.sh
      CAPTURE(text);
      CHECK(has(all, {each.says}));
      CHECK(has(all, {bug(folder + each.file, each.name)}));
    }
  }
}

}  // namespace flash
