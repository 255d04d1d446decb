// What exponents need: the factor from e to 2, and a maximum that may be -inf. From 04 on.
#pragma once

#include "common/machine/cuda.cuh"

namespace flash {
namespace {

constexpr float LOG2_E = 1.44269504f;

/// m, or 0 where no key was visible yet: e^(-inf - 0) = 0, where e^(-inf + inf) is NaN. In chapters
/// 02 and 03: `shift`.
__device__ inline float zero_if_empty(float m) { return m == -INFINITY ? 0.0f : m; }

}  // namespace
}  // namespace flash
