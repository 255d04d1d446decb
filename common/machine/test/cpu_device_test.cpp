// The simulator as a device.
#include "common/machine/device.hpp"
#include "common/machine/test/zoo.hpp"

#include <array>
#include <cmath>
#include <cstdint>

namespace flash {
namespace {

__global__ void store(Tensor<float> out) { out.head(0, 0)(0, static_cast<int>(threadIdx.x)) = 1.0f; }

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

TEST_CASE("CPU device: launches and counts") {
  const auto cpu = open_cpu();
  Buffer buffer(*cpu, 8);
  const TensorRef ref{buffer.data(), "out", Dtype::fp32, {1, 1, 1, 2}, {2, 2, 2, 1}};
  const auto run = [&](unsigned threads) {
    cpu->run([&] { launch("store", {dim3(1), dim3(threads)}, store, view<float>(ref)); });
  };
  cpu->reset_counters();
  run(2);
  const Counters counters = cpu->counters();
  REQUIRE(counters.traffic.size() == 1);
  CHECK(counters.traffic[0].tensor == "out");
  CHECK(counters.traffic[0].written_bytes == 8);
  CHECK(counters.traffic[0].written_sectors == 1);
  CHECK(options().count == false);
  CHECK_THROWS_WITH_AS(run(3), doctest::Contains("out[b=0, h=0](0, 2) is outside"), KernelError);
}

}  // namespace flash
