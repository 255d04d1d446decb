// How many lanes a warp has, and the mask that names all of them to shuffles and votes.
#pragma once

#include "common/machine/cuda.cuh"

namespace flash {
namespace {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

}  // namespace
}  // namespace flash
