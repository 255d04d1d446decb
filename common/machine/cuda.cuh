// What a kernel of any project includes: nvcc gets CUDA, views of tensors and launch(); a host compiler gets the same from the simulator, which
// runs every CUDA thread on the CPU.
#pragma once

#ifdef __CUDACC__
#include "common/machine/gpu/launch.cuh"
#include "common/machine/gpu/view.cuh"
#else
#include "common/machine/cpu/cuda.hpp"
#endif
