// What kernels run on: a GPU or the simulator, behind one interface for memory, waiting, timing, counting.
#pragma once

#include "common/machine/types.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace flash {

struct DeviceInfo {
  Backend kind = Backend::cpu;
  std::string name;                  ///< "NVIDIA H100 80GB HBM3", or the processor's name
  int sm = 0;                        ///< 90 for compute capability 9.0; 0 on a CPU
  std::string cuda;                  ///< run-time version "13.0"; empty on a CPU
  std::string driver;                ///< driver version; empty on a CPU
  int simulates_sm = 0;              ///< the GPU that the simulator stands for; 0 on a GPU
  std::string order;                 ///< of the simulator's threads, as FLASH_SIMT_ORDER has it; empty on a GPU
  std::size_t memory_free = 0;       ///< bytes; 0 on a CPU, which require_host_memory() asks
  double peak_fp32_tflops = 0;       ///< from the device's own clock and units; 0 on a CPU
  double peak_tensor16_tflops = 0;   ///< dense fp16/bf16; 0 on a CPU
  double peak_bytes_per_second = 0;  ///< HBM; 0 on a CPU
};

struct Timing {
  double median_ms = 0, min_ms = 0, max_ms = 0;
  int iterations = 0;
  bool cold_l2 = true;
};

/// A GPU, or the simulator on this CPU. Errors are DeviceError, or KernelError from the simulator.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual DeviceLimits limits() const = 0;        ///< of a launch; the simulator answers for the GPU that it stands for
  virtual void* allocate(std::size_t bytes) = 0;  ///< DeviceError with sizes in words if it does not fit
  virtual void release(void* pointer) noexcept = 0;
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  /// Fills with 0xFF: NaN in fp32, fp16 and bf16.
  virtual void poison(void* device, std::size_t bytes) = 0;
  /// Runs launches to their end; an error of any of them is thrown here.
  virtual void run(const std::function<void()>& launches) = 0;
  /// Device events around the launches alone, after warm-up; L2 flushed before each iteration. GPU only.
  virtual Timing time(const std::function<void()>& launches, int iterations) = 0;
  /// Zeroes, and returns, what the simulator counted. Empty on a GPU.
  virtual void reset_counters() = 0;
  virtual Counters counters() = 0;
};

/// The GPU that is current for this thread, the first one unless cudaSetDevice() has said otherwise; or null with the reason in `why_not` ("holds no GPU code: ...", "no CUDA device answers: ...").
std::unique_ptr<Device> open_gpu(std::string& why_not);

/// The simulator.
std::unique_ptr<Device> open_cpu();

/// Device memory that frees itself.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::size_t bytes) : device_(&device), bytes_(bytes), data_(device.allocate(bytes)) {}
  ~Buffer() {
    if (data_ != nullptr) device_->release(data_);
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void poison() { device_->poison(data_, bytes_); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
  }
  Device* device_ = nullptr;
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace flash
