// The simulator as a device.
#include "common/machine/device.hpp"
#include "common/machine/test/zoo.hpp"

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

TEST_CASE("CPU device: what it refuses") {
  const auto cpu = open_cpu();
  CHECK_THROWS_WITH_AS(Buffer(*cpu, std::size_t{1} << 60), doctest::Contains("a buffer needs 1.0 EiB of main memory; "),
                       DeviceError);
  CHECK_THROWS_AS(cpu->time([] {}, 1), DeviceError);
}

}  // namespace flash
