#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/cuda.cuh"
#include "common/machine/device.hpp"

#include <cstdio>

using namespace flash;

__global__ void reverse(float* x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  // __syncthreads();  is missing
  x[threadIdx.x] = tile[63 - threadIdx.x];
}

int main() {
  set_options({.watch = true});
  const auto cpu = open_cpu();
  const Buffer x(*cpu, 64 * sizeof(float));
  launch("reverse", {dim3(1), dim3(64)}, reverse, static_cast<float*>(x.data()));
  for (const Race& race : findings().races) std::printf("%s\n", sentence(race).c_str());
}
