// Times: the median, and what a timer without synchronisation would read.
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

namespace {

using namespace flash;

/// The CPU, with launches timed as a GPU times them: three for warm-up, then the iterations. Its own clock says 1 ms.
class Timed final : public Device {
 public:
  const DeviceInfo& info() const override { return cpu_->info(); }
  DeviceLimits limits() const override { return cpu_->limits(); }
  void* allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  void release(void* pointer) noexcept override { cpu_->release(pointer); }
  void upload(void* to, const void* from, std::size_t bytes) override { cpu_->upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { cpu_->download(to, from, bytes); }
  void poison(void* device, std::size_t bytes) override { cpu_->poison(device, bytes); }
  void run(const std::function<void()>& launches) override { launches(); }
  Timing time(const std::function<void()>& launches, int iterations, bool cold_l2) override {
    for (int i = 0; i < 3 + iterations; ++i) launches();
    return {.median_ms = 1, .min_ms = 1, .max_ms = 1, .iterations = iterations, .cold_l2 = cold_l2};
  }
  void reset_counters() override {}
  Counters counters() const override { return {}; }

 private:
  std::unique_ptr<Device> cpu_ = open_cpu();
};

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

int launches;  // so far

}  // namespace

TEST_CASE("timing: a median of an odd and of an even number of times") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(median({7}) == 7);
}

TEST_CASE("timing: the host's time of the launches, the first apart from the median of the others") {
  launches = 0;
  const Variant slow_at_first{
      .name = "slow", .idea = "", .forward = [](const Attention&) { sleep_ms(launches++ == 0 ? 60 : 2); }};
  FullProblem one;
  one.B = one.H = one.Hkv = one.Nq = one.Nk = one.d = 1;
  Timed device;
  Runner runner(device, slow_at_first, one, make_inputs(one, InputKind::normal, 1, Pass::forward), Pass::forward);
  runner.run();  // as the check does, before anything is timed
  const Timing timing = runner.time(5, true);
  CHECK(timing.median_ms == 1);
  CHECK(timing.first_enqueue_ms >= 60);
  CHECK(timing.enqueue_ms >= 2);
  CHECK(timing.enqueue_ms < 60);
  CHECK(launches == 2 + 3 + 5);
}
