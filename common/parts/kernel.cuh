// The one include of a kernel file of a stage: CUDA, or its twin on the CPU, and the problem.
#pragma once

#include "common/attention/problem.hpp"
#include "common/attention/tensor.hpp"
#include "common/attention/variant.hpp"
#include "common/parts/grid.hpp"

#ifdef __CUDACC__
#include "common/machine/gpu/launch.cuh"
#include "common/machine/gpu/view.cuh"
#else
#include "common/machine/cpu/cuda.hpp"
#endif

#include "common/parts/score.cuh"
