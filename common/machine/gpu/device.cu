// The GPU behind the Device interface.
#include "common/machine/device.hpp"
#include "common/machine/gpu/check.cuh"

#include <algorithm>
#include <fstream>

namespace flash {
namespace {

/// fp32 FMA units per multiprocessor, from NVIDIA's CUDA C++ Programming Guide, table of arithmetic throughput.
int fp32_units(int sm) { return sm == 75 || sm == 80 ? 64 : 128; }

/// Dense fp16/bf16 tensor-core multiply-adds per clock and multiprocessor with fp32 accumulation, from NVIDIA's architecture
/// whitepapers (Turing 512, A100 1024, GA10x and Ada 512 for the professional parts, Hopper 2048, B200 4096). 0: not known.
int tensor16_products(int sm) {
  switch (sm) {
    case 75:
      return 512;
    case 80:
      return 1024;
    case 86:
    case 89:
      return 512;
    case 90:
      return 2048;
    case 100:
      return 4096;
    default:
      return 0;
  }
}

/// "13.0" of 13000.
std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

/// "580.159.04" from the kernel module's own page; without it, the CUDA version that the driver supports.
std::string driver_version() {
  std::ifstream page("/proc/driver/nvidia/version");
  std::string word;
  while (page >> word) {
    const bool digits_and_dots = word.find_first_not_of("0123456789.") == std::string::npos;
    if (digits_and_dots && word.find('.') != std::string::npos) return word;
  }
  int version = 0;
  check_cuda(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  return "CUDA " + version_text(version);
}

/// Why cudaGetDeviceCount() found none. CUDA calls a driver that is not there insufficient.
std::string why_no_gpu(cudaError_t status) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (status == cudaErrorInsufficientDriver && driver == 0) return "no NVIDIA driver is installed here, so no GPU can answer";
  if (status == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver here knows CUDA up to " + version_text(driver) + ", and this program was built with CUDA " +
           version_text(runtime) + ": it needs a newer driver";
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "no NVIDIA GPU answers, though its driver is installed";
  return std::string("no CUDA device answers: ") + cudaGetErrorString(status);
}

/// Of an even number of times, the mean of the two in the middle. There is at least one.
double median(std::vector<double> times) {
  std::ranges::sort(times);
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : 0.5 * (times[middle - 1] + times[middle]);
}

/// Two events that free themselves.
struct EventPair {
  cudaEvent_t start{}, stop{};
  EventPair() {
    check_cuda(cudaEventCreate(&start), "cudaEventCreate");
    check_cuda(cudaEventCreate(&stop), "cudaEventCreate");
  }
  ~EventPair() {
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;

  float milliseconds() const {
    check_cuda(cudaEventSynchronize(stop), "kernel");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
    return ms;
  }
};

// A block is smaller where the code is compiled with wgmma, so that the host can tell.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__global__ void __launch_bounds__(512) compiled_as_all_kernels() {}
#else
__global__ void __launch_bounds__(1024) compiled_as_all_kernels() {}
#endif

cudaFuncAttributes attributes_of_all_kernels() {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, compiled_as_all_kernels), "this program has no code that this GPU runs");
  return attributes;
}

/// What the kernels of this program were compiled for: 80 for compute capability 8.0. It is less than the GPU's own where the
/// GPU is newer than all architectures of the build, and where the driver compiles intermediate code (PTX) of an older one.
int compiled_sm() { return attributes_of_all_kernels().ptxVersion; }
bool compiled_with_wgmma() { return attributes_of_all_kernels().maxThreadsPerBlock == 512; }

class GpuDevice final : public Device {
 public:
  GpuDevice() {
    int gpu = 0;
    check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    int runtime = 0;
    check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    info_.kind = Backend::gpu;
    info_.name = properties.name;
    info_.sm = properties.major * 10 + properties.minor;
    info_.cuda = version_text(runtime);
    info_.driver = driver_version();
    std::size_t installed = 0;
    check_cuda(cudaMemGetInfo(&info_.memory_free, &installed), "cudaMemGetInfo");
    const double clock_hz = 1e3 * attribute(cudaDevAttrClockRate, gpu);
    const double per_clock = properties.multiProcessorCount * clock_hz * 1e-12;
    info_.peak_fp32_tflops = 2.0 * fp32_units(info_.sm) * per_clock;
    info_.peak_tensor16_tflops = 2.0 * tensor16_products(info_.sm) * per_clock;
    // Two transfers per memory clock, the bus width in bits.
    info_.peak_bytes_per_second =
        2.0 * 1e3 * attribute(cudaDevAttrMemoryClockRate, gpu) * attribute(cudaDevAttrGlobalMemoryBusWidth, gpu) / 8;
    l2_bytes_ = static_cast<std::size_t>(properties.l2CacheSize);
    limits_ = {compiled_sm(), properties.multiProcessorCount, properties.sharedMemPerBlockOptin,
               properties.sharedMemPerMultiprocessor, compiled_with_wgmma()};
  }

  const DeviceInfo& info() const override { return info_; }
  DeviceLimits limits() const override { return limits_; }

  void* allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    const cudaError_t status = cudaMalloc(&pointer, std::max<std::size_t>(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the failure is handled here; it must not be reported again by the next launch
      std::size_t free = 0, total = 0;
      check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
      throw DeviceError("not enough GPU memory: " + std::to_string(bytes) + " bytes wanted, " + std::to_string(free) +
                        " free of " + std::to_string(total));
    }
    check_cuda(status, "cudaMalloc of " + std::to_string(bytes) + " bytes");
    return pointer;
  }

  void release(void* pointer) noexcept override { cudaFree(pointer); }

  void upload(void* device, const void* host, std::size_t bytes) override {
    check_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
  }

  void download(void* host, const void* device, std::size_t bytes) override {
    check_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
  }

  void poison(void* device, std::size_t bytes) override { check_cuda(cudaMemset(device, 0xFF, bytes), "cudaMemset"); }

  void run(const std::function<void()>& launches) override {
    launches();
    check_cuda(cudaDeviceSynchronize(), "kernel");
  }

  Timing time(const std::function<void()>& launches, int iterations) override {
    constexpr int warm_ups = 3;
    for (int i = 0; i < warm_ups; ++i) launches();
    check_cuda(cudaDeviceSynchronize(), "kernel");

    // Overwriting a buffer of four times the L2 leaves nothing of the inputs in it. The launches are queued while that runs,
    // so that the time between the events holds no gap of the CPU's making.
    const Buffer flush(*this, 4 * l2_bytes_);
    std::vector<double> ms;
    const EventPair events;
    for (int i = 0; i < iterations; ++i) {
      check_cuda(cudaMemsetAsync(flush.data(), i & 1, flush.bytes()), "flush of the L2");
      check_cuda(cudaEventRecord(events.start), "cudaEventRecord");
      launches();
      check_cuda(cudaEventRecord(events.stop), "cudaEventRecord");
      ms.push_back(events.milliseconds());
    }
    const auto [fastest, slowest] = std::minmax_element(ms.begin(), ms.end());
    return {.median_ms = median(ms), .min_ms = *fastest, .max_ms = *slowest, .iterations = iterations};
  }

  void reset_counters() override {}
  Counters counters() override { return {}; }

 private:
  DeviceInfo info_;
  DeviceLimits limits_;
  std::size_t l2_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_gpu(std::string& why_not) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    why_not = why_no_gpu(status);
    return nullptr;
  }
  try {
    return std::make_unique<GpuDevice>();
  } catch (const DeviceError& error) {
    why_not = error.what();
    return nullptr;
  }
}

}  // namespace flash
