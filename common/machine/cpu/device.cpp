// The simulator as a device.
#include "common/machine/device.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/device_memory.hpp"
#include "common/machine/engine/limits.hpp"
#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace flash {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
#if defined(__aarch64__)
  return "AArch64 processor";
#elif defined(__x86_64__)
  return "x86-64 processor";
#else
  return "CPU";
#endif
}

class CpuDevice final : public Device {
 public:
  CpuDevice() {
    const Options chosen = options();  // a bad FLASH_SIMT_* variable is refused here
    info_.kind = Backend::cpu;
    info_.name = processor_name();
    info_.simulates_sm = chosen.target_sm;
    info_.order = order_text(chosen);
  }

  const DeviceInfo& info() const override { return info_; }
  DeviceLimits limits() const override { return machine::limits_of(options().target_sm); }

  void* allocate(std::size_t bytes) override {
    // Linux promises more memory than it has and kills who uses it: ask first.
    require_host_memory(static_cast<double>(bytes), "a buffer");
    // posix_memalign keeps the exact size, so that AddressSanitizer guards the very next byte.
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) {
      throw DeviceError("there is no main memory for a buffer of " + bytes_text(static_cast<double>(bytes)));
    }
    machine::add_device_memory(memory, bytes);
    return memory;
  }

  void release(void* pointer) noexcept override {
    machine::remove_device_memory(pointer);
    std::free(pointer);
  }
  void upload(void* device, const void* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
    machine::set_poisoned(device, false);
  }
  void download(void* host, const void* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }
  void poison(void* device, std::size_t bytes) override {
    std::memset(device, 0xFF, bytes);
    machine::set_poisoned(device, true);
  }
  void run(const std::function<void()>& launches) override { launches(); }

  Timing time(const std::function<void()>&, int) override {
    throw DeviceError("the CPU simulates the kernels: its times say nothing about a GPU and are not measured");
  }

  // A counting run lasts from one call to the other; only then are bank conflicts looked for, which takes time.
  void reset_counters() override {
    simt::reset_counters();
    Options counting = options();
    counting.count = true;
    set_options(counting);
  }
  Counters counters() override {
    Options plain = options();
    plain.count = false;
    set_options(plain);
    return simt::counters();
  }

 private:
  static constexpr std::size_t alignment = 256;  // cudaMalloc's
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> open_cpu() { return std::make_unique<CpuDevice>(); }

}  // namespace flash
