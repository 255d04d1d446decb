// The one include of a kernel file. nvcc gets CUDA; a host compiler gets common/simt, which runs every CUDA thread on the CPU.
#pragma once

#include "common/attention/problem.hpp"
#include "common/attention/tensor.hpp"
#include "common/attention/variant.hpp"
#include "common/device/grid.hpp"

#ifdef __CUDACC__
#include "common/device/launch.cuh"
#include "common/device/view.cuh"
#else
#include "common/simt/cuda.hpp"
#endif

#include "common/device/score.cuh"
