// What every kernel needs: CUDA, or its twin on the CPU, and the problem. Of this folder's other
// headers a reader of the ladder needs exponent and rows.
#pragma once

#include "common/attention/problem.hpp"
#include "common/attention/tensor.hpp"
#include "common/attention/variant.hpp"
#include "common/machine/cuda.cuh"
#include "common/parts/exponent.cuh"
#include "common/parts/grid.hpp"
