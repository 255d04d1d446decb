// The simulator as a device.
#include "common/machine/device.hpp"
#include "common/machine/test/zoo.hpp"

#include <array>
#include <cmath>
#include <cstdint>

namespace flash {
namespace {

using Kernel = void (*)(int, float);

/// Whether launch() takes these arguments for such a kernel.
template <class... Arguments>
concept Launches = requires(Kernel kernel, Arguments... arguments) {
  launch("kernel", {}, kernel, arguments...);
};

static_assert(Launches<int, float> && Launches<short, float>);
static_assert(!Launches<long long, float> && !Launches<unsigned, float> && !Launches<float, float>, "would narrow to int");
static_assert(!Launches<int, double> && !Launches<int, int>, "would narrow to float");
static_assert(!Launches<int> && !Launches<int, float, float>, "as many arguments as parameters");

}  // namespace

TEST_CASE("CPU device: memory") {
  const auto cpu = open_cpu();
  CHECK(cpu->info().kind == Backend::cpu);
  CHECK(cpu->info().name != "");

  Buffer buffer(*cpu, 12);
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256 == 0);
  buffer.poison();
  std::array<float, 3> values{};
  cpu->download(values.data(), buffer.data(), 12);
  for (const float value : values) CHECK(std::isnan(value));
  values = {1.0f, 2.0f, 3.0f};
  std::array<float, 3> back{};
  cpu->upload(buffer.data(), values.data(), 12);
  cpu->download(back.data(), buffer.data(), 12);
  CHECK(back == values);

  CHECK_THROWS_WITH_AS(Buffer(*cpu, std::size_t{1} << 60), doctest::Contains("a buffer needs 1.0 EiB of main memory; "),
                       DeviceError);
  CHECK_THROWS_AS(cpu->time([] {}, 1), DeviceError);
}

}  // namespace flash
