// The CUDA runtime calls of a standalone.cu, on top of the simulator. common/cmake/standalone.cmake includes this first, leaves out the file's PTX, and
// turns kernel<<<grid, block>>>(...) into simulate("kernel", grid, block, kernel, ...). Memory starts as NaN, races are reported, and no time
// is measured. FLASH_WITHOUT_LINE=NUMBER leaves out the barrier on that line, to see which race it prevents.
#pragma once

#include "common/machine/cpu/cuda.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/float16.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/cpu/ptx.hpp"
#include "common/machine/device.hpp"
#include "common/machine/error.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using namespace flash;

using cudaError_t = const char*;  // its message
constexpr cudaError_t cudaSuccess = nullptr;
inline const char* cudaGetErrorString(cudaError_t error) { return error; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }  // simulate() ends the program instead

struct cudaDeviceProp {
  char name[256];
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) {
  *device = {"the simulator"};
  return cudaSuccess;
}

inline Device& simulator() {
  static const std::unique_ptr<Device> device = open_cpu();
  return *device;
}
template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) try {
  *memory = static_cast<T*>(simulator().allocate(bytes));
  simulator().poison(*memory, bytes);
  static std::vector<std::shared_ptr<void>> freed_at_exit;
  freed_at_exit.emplace_back(*memory, [](void* each) { simulator().release(each); });
  return cudaSuccess;
} catch (const DeviceError&) {
  return "out of memory";
}
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  kind == cudaMemcpyHostToDevice ? simulator().upload(to, from, bytes) : simulator().download(to, from, bytes);
  return cudaSuccess;
}

using cudaEvent_t = int;
inline cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = NAN;
  return cudaSuccess;
}

/// C += A B, with B's two registers one by one.
inline void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, Site site = Site::here()) {
  mma_m16n8k16_f16(c, a, {b0, b1}, c, site);
}

/// Called by kernels, which may not read variables of the host.
inline bool kept(int line) {
  const char* const left_out = std::getenv("FLASH_WITHOUT_LINE");
  return left_out == nullptr || line != std::atoi(left_out);
}

/// Runs the kernel. Ends the program at what the simulator stops for, and at a race.
template <class... Parameters, class... Arguments>
void simulate(const char* name, dim3 grid, dim3 block, void (*kernel)(Parameters...), Arguments... arguments) {
  std::string wrong;
  try {
    Options watching = options();
    watching.watch = can_watch();
    set_options(watching);
    launch(name, {grid, block}, kernel, arguments...);
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  const Findings found = findings();
  for (const Race& race : found.races) wrong += "RACE: " + sentence(race) + "\n";
  for (const UnwrittenRead& read : found.unwritten) wrong += sentence(read) + "\n";
  if (wrong.empty()) return;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::exit(1);
}
