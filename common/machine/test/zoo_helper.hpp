// A helper in a file of its own, for messages that say who called it.
#pragma once

#include "common/machine/test/zoo.hpp"

namespace flash {
namespace {

/// Not inlined: the caller is found by its frame.
__device__ __attribute__((noinline)) void store_apart(float* tile, int i) {
  tile[i] = static_cast<float>(i);  // BUG store apart
}
__device__ __forceinline__ float load_inlined(const float* tile, int i) {
  return tile[i];  // BUG load inlined
}

inline std::string helper_line(const std::string& name) { return BUG(name); }

}  // namespace
}  // namespace flash
