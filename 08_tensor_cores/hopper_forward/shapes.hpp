// 08 Tensor cores, Hopper forward: the tile sizes that are compiled, why to choose them (--list),
// and their speed relative to the first of the width, as measured with --tune on an H200 (left out:
// 3/4 of the line before).
#pragma once

#include "08_tensor_cores/parts/launch.cuh"

namespace flash::tensor_cores {
namespace {

/// Step 1. Width, Br, Bc, row fragments per warp, blocks per SM.
template <template <int...> class Shape>
constexpr CompiledShape tma_shapes[] = {
    compiled<Shape<64, 128, 64, 2, 2>>("32 rows a warp, Q in registers"),
    compiled<Shape<64, 64, 64, 1, 3>>("twice as many blocks, three on an SM"),
    compiled<Shape<80, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<80, 64, 32, 1, 3>>("twice as many blocks, little shared memory"),
    compiled<Shape<96, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<96, 64, 32, 1, 3>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 128, 48, 2, 2>>("32 rows a warp"),
    compiled<Shape<128, 64, 32, 1, 2>>("twice as many blocks, little shared memory"),
    compiled<Shape<256, 128, 64, 1, 1>>(
        "16 rows a warp: more of O than that has no room; 8 warps share K and V"),
    compiled<Shape<256, 64, 32, 1, 2>>("twice as many blocks"),
    compiled<Shape<256, 32, 16, 1, 4>>("little shared memory"),
};

/// Steps 2 to 5. Width, Br, Bc.
template <template <int...> class Shape>
constexpr CompiledShape wgmma_shapes[] = {
    compiled<Shape<64, 128, 128>>("two warpgroups share K and V"),
    compiled<Shape<64, 64, 64>>("twice as many blocks, little shared memory"),
    compiled<Shape<80, 128, 128>>("two warpgroups share K and V"),
    compiled<Shape<80, 64, 64>>("twice as many blocks, little shared memory"),
    compiled<Shape<96, 128, 128>>("two warpgroups share K and V"),
    compiled<Shape<96, 64, 64>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 128, 128>>("two warpgroups share K and V"),
    compiled<Shape<128, 64, 64>>("twice as many blocks, little shared memory"),
    compiled<Shape<256, 128, 64>>("two warpgroups share K and V"),
    compiled<Shape<256, 64, 32>>("twice as many blocks, little shared memory"),
};

/// Step 6. Width, Br, Bc, stages.
template <template <int...> class Shape>
constexpr CompiledShape tall_shapes[] = {
    compiled<Shape<64, 192, 96, 3>>("three warpgroups: with Bc = 96 a fourth would spill"),
    compiled<Shape<64, 64, 64, 2>>("little shared memory"),
    compiled<Shape<80, 192, 64, 3>>("three warpgroups"),
    compiled<Shape<80, 64, 64, 2>>("little shared memory"),
    compiled<Shape<96, 192, 64, 3>>("three warpgroups"),
    compiled<Shape<96, 64, 64, 2>>("little shared memory"),
    compiled<Shape<128, 192, 64, 3>>("three warpgroups"),
    compiled<Shape<128, 64, 64, 2>>("little shared memory"),
    compiled<Shape<256, 128, 64, 2>>("two warpgroups: registers hold no more of O"),
    compiled<Shape<256, 64, 32, 2>>("little shared memory"),
};

/// Step 7. Width, Br, Bc, stages.
template <template <int...> class Shape>
constexpr CompiledShape scheduled_shapes[] = {
    compiled<Shape<64, 256, 64, 3>>("four warpgroups"),
    compiled<Shape<64, 192, 96, 3>>("three warpgroups", 0.96),
    compiled<Shape<64, 128, 128, 2>>("two warpgroups", 0.89),
    compiled<Shape<64, 64, 64, 2>>("little shared memory", 0.48),
    compiled<Shape<80, 192, 64, 3>>("three warpgroups"),
    compiled<Shape<80, 64, 64, 2>>("little shared memory", 0.46),
    compiled<Shape<96, 192, 64, 3>>("three warpgroups"),
    compiled<Shape<96, 128, 128, 2>>("two warpgroups", 0.88),
    compiled<Shape<96, 64, 64, 2>>("little shared memory", 0.50),
    compiled<Shape<128, 192, 64, 3>>("three warpgroups"),
    compiled<Shape<128, 128, 128, 2>>("two warpgroups", 0.89),
    compiled<Shape<128, 64, 64, 2>>("little shared memory", 0.56),
    compiled<Shape<256, 128, 64, 2>>("registers hold no more of O"),
    compiled<Shape<256, 64, 32, 2>>("little shared memory", 0.57),
};

}  // namespace
}  // namespace flash::tensor_cores
