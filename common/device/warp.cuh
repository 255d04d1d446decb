// Reductions over the 32 lanes of a warp. Chapter 02 introduces and explains them.
#pragma once

#include "common/device/device.cuh"

namespace flash {
namespace {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

}  // namespace
}  // namespace flash
