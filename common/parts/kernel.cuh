// What every kernel file of a stage includes first: CUDA, or its twin on the CPU, and the problem.
#pragma once

#include "common/attention/problem.hpp"
#include "common/attention/tensor.hpp"
#include "common/attention/variant.hpp"
#include "common/machine/cuda.cuh"
#include "common/parts/exponent.cuh"
#include "common/parts/grid.hpp"
