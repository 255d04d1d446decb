// What every kernel needs: CUDA, or its twin on the CPU, the problem, LOG2_E, zero_if_empty().
#pragma once

#include "common/attention/problem.hpp"
#include "common/attention/tensor.hpp"
#include "common/attention/variant.hpp"
#include "common/machine/cuda.cuh"
#include "common/parts/launch_shape.hpp"

namespace flash {
namespace {

constexpr float LOG2_E = 1.44269504f;  // e^x = 2^(LOG2_E x)

/// m, or 0 where no key was visible yet: e^(-inf - 0) = 0, where e^(-inf + inf) is NaN.
__device__ inline float zero_if_empty(float m) { return m == -INFINITY ? 0.0f : m; }

}  // namespace
}  // namespace flash
