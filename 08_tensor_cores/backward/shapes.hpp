// 08 Tensor cores, backward: the tile sizes that are compiled, why to choose them (--list), and
// their speed relative to the first of the width, as measured with --tune on an H200 (left out: 3/4
// of the line before).
#pragma once

#include "08_tensor_cores/parts/launch.cuh"

namespace flash::tensor_cores {
namespace {

/// Step 1. Width, Br, Bc, row fragments per warp, blocks per SM.
template <template <int...> class Shape>
constexpr CompiledShape seven_products_shapes[] = {
    compiled<Shape<32, 64, 128, 2, 2>>("32 keys a warp"),
    compiled<Shape<32, 32, 64, 1, 2>>("little shared memory"),
    compiled<Shape<64, 32, 128, 2, 2>>("32 keys a warp"),
    compiled<Shape<64, 32, 64, 1, 2>>("little shared memory"),
    compiled<Shape<96, 32, 64, 1, 2>>("16 keys a warp"),
    compiled<Shape<128, 32, 64, 1, 2>>("16 keys a warp"),
    compiled<Shape<128, 16, 64, 1, 2>>("little shared memory"),
    compiled<Shape<256, 32, 64, 1, 1>>("16 keys a warp"),
    compiled<Shape<256, 16, 32, 1, 1>>("little shared memory"),
};

/// Step 2 and more/options.cuh.
template <template <int...> class Shape>
constexpr CompiledShape five_products_shapes[] = {
    compiled<Shape<32, 64, 128, 2, 2>>("32 keys a warp"),
    compiled<Shape<32, 32, 64, 1, 2>>("little shared memory"),
    compiled<Shape<64, 32, 128, 2, 2>>("32 keys a warp"),
    compiled<Shape<64, 32, 64, 1, 2>>("little shared memory"),
    compiled<Shape<96, 32, 64, 1, 2>>("16 keys a warp"),
    compiled<Shape<128, 32, 64, 1, 2>>("16 keys a warp"),
    compiled<Shape<128, 16, 64, 1, 2>>("little shared memory"),
    compiled<Shape<256, 16, 64, 1, 1>>("16 keys a warp"),
    compiled<Shape<256, 16, 32, 1, 1>>("little shared memory"),
};

/// Step 3. Width, Br, Bc, warps.
template <template <int...> class Shape>
constexpr CompiledShape halves_shapes[] = {
    compiled<Shape<32, 64, 128, 8>>("32 keys a warp"),
    compiled<Shape<64, 64, 128, 8>>("32 keys a warp"),
    compiled<Shape<64, 64, 64, 8>>("little shared memory"),
    compiled<Shape<96, 64, 128, 8>>("32 keys a warp"),
    compiled<Shape<96, 32, 64, 8>>("little shared memory"),
    compiled<Shape<128, 64, 128, 8>>("32 keys a warp"),
    compiled<Shape<128, 32, 128, 8>>("less shared memory"),
    compiled<Shape<128, 16, 64, 8>>("little shared memory"),
    compiled<Shape<256, 32, 64, 8>>("16 keys a warp"),
    compiled<Shape<256, 16, 32, 4>>("little shared memory"),
};

/// Step 4. Width, Br, Bc, warps.
template <template <int...> class Shape>
constexpr CompiledShape staggered_shapes[] = {
    compiled<Shape<32, 128, 128, 8>>("32 keys a warp"),
    compiled<Shape<32, 64, 128, 8>>("fits the registers of sm_80"),
    compiled<Shape<32, 64, 64, 8>>("little shared memory"),
    compiled<Shape<64, 128, 128, 8>>("half the barriers"),
    compiled<Shape<64, 64, 128, 8>>("32 keys a warp", 0.89),
    compiled<Shape<64, 64, 64, 8>>("little shared memory", 0.63),
    compiled<Shape<64, 32, 64, 8>>("least shared memory", 0.55),
    compiled<Shape<96, 64, 128, 8>>("32 keys a warp"),
    compiled<Shape<96, 32, 128, 8>>("less shared memory"),
    compiled<Shape<96, 32, 64, 8>>("little shared memory"),
    compiled<Shape<96, 16, 64, 8>>("least shared memory"),
    compiled<Shape<128, 64, 128, 8>>("32 keys a warp"),
    compiled<Shape<128, 32, 128, 8>>("less shared memory", 0.82),
    compiled<Shape<128, 32, 64, 8>>("little shared memory", 0.58),
    compiled<Shape<128, 16, 64, 8>>("least shared memory", 0.43),
    compiled<Shape<256, 32, 64, 8>>("16 keys a warp"),
    compiled<Shape<256, 16, 64, 8>>("less shared memory"),
    compiled<Shape<256, 16, 32, 4>>("little shared memory"),
};

}  // namespace
}  // namespace flash::tensor_cores
