// 08 Tensor cores, forward: the tile sizes that are compiled, why to choose them (--list), and
// their speed relative to the first of the width, as measured with --tune on an H200 (left out: 3/4
// of the line before). Width, Br, Bc, row fragments per warp, from step 7 on blocks per SM.
#pragma once

#include "08_tensor_cores/parts/launch.cuh"

namespace flash::tensor_cores {
namespace {

/// Steps 1 to 6.
template <template <int...> class Shape>
constexpr CompiledShape mma_shapes[] = {
    compiled<Shape<32, 128, 64, 2>>("32 rows a warp"),
    compiled<Shape<64, 128, 64, 2>>("32 rows a warp"),
    compiled<Shape<64, 64, 64, 1>>("twice as many blocks"),
    compiled<Shape<96, 128, 32, 2>>("32 rows a warp"),
    compiled<Shape<96, 64, 32, 1>>("little shared memory"),
    compiled<Shape<128, 128, 32, 2>>("32 rows a warp"),
    compiled<Shape<128, 64, 32, 1>>("little shared memory"),
    compiled<Shape<256, 64, 32, 1>>("16 rows a warp: more of O than that has no room"),
    compiled<Shape<256, 32, 16, 1>>("little shared memory"),
};

/// Steps 7 to 10.
template <template <int...> class Shape>
constexpr CompiledShape fitted_shapes[] = {
    compiled<Shape<32, 64, 64, 1, 4>>("four blocks on an SM: few products to each exponential"),
    compiled<Shape<32, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<64, 128, 64, 2, 2>>("32 rows a warp, Q in registers"),
    compiled<Shape<64, 64, 64, 1, 3>>("twice as many blocks, three on an SM", 0.80),
    compiled<Shape<96, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<96, 64, 32, 1, 3>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 128, 48, 2, 2>>("32 rows a warp"),
    compiled<Shape<128, 128, 32, 2, 2>>("less shared memory"),
    compiled<Shape<128, 64, 32, 1, 2>>("twice as many blocks, little shared memory", 0.73),
    compiled<Shape<256, 128, 64, 1, 1>>(
        "16 rows a warp, as O has no room for more; 8 warps share K and V"),
    compiled<Shape<256, 64, 32, 1, 2>>("twice as many blocks"),
    compiled<Shape<256, 32, 16, 1, 4>>("little shared memory"),
};

/// Those for more/options.cuh: tiles of 32 keys at widths 96 and 128. With 64 a rule would spill,
/// and 48 are not pairs of keys 16 apart, which dropout draws together.
template <template <int...> class Shape>
constexpr CompiledShape options_shapes[] = {
    compiled<Shape<32, 64, 64, 1, 4>>("four blocks on an SM: few products to each exponential"),
    compiled<Shape<32, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<64, 128, 64, 2, 2>>("32 rows a warp, Q in registers"),
    compiled<Shape<64, 64, 64, 1, 3>>("twice as many blocks, three on an SM", 0.80),
    compiled<Shape<96, 128, 32, 2, 2>>("32 rows a warp"),
    compiled<Shape<96, 64, 32, 1, 3>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 128, 32, 2, 2>>("32 rows a warp"),
    compiled<Shape<128, 64, 32, 1, 2>>("twice as many blocks, little shared memory", 0.73),
    compiled<Shape<256, 128, 64, 1, 1>>(
        "16 rows a warp, as O has no room for more; 8 warps share K and V"),
    compiled<Shape<256, 64, 32, 1, 2>>("twice as many blocks"),
    compiled<Shape<256, 32, 16, 1, 4>>("little shared memory"),
};

}  // namespace
}  // namespace flash::tensor_cores
