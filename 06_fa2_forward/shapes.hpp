// 06 FlashAttention-2, forward: the tile sizes that are compiled, why to choose them (--list), and
// their speed on a full SM relative to the first of the width, as measured with --tune on an H200
// (left out: 3/4 of the line before).
#pragma once

#include "06_fa2_forward/tiles.cuh"

namespace flash::fa2_forward {
namespace {

/// Step 1. Width, Br, Bc.
template <template <int...> class Shape>
constexpr CompiledShape loop_order_shapes[] = {
    compiled<Shape<32, 128, 32>>("K and V move once for each 128 queries"),
    compiled<Shape<32, 64, 32>>("twice as many blocks"),
    compiled<Shape<32, 32, 32>>("little shared memory, most blocks"),
    compiled<Shape<64, 128, 32>>("K and V move once for each 128 queries"),
    compiled<Shape<64, 64, 32>>("twice as many blocks"),
    compiled<Shape<64, 32, 32>>("little shared memory, most blocks"),
    compiled<Shape<96, 128, 32>>("K and V move once for each 128 queries"),
    compiled<Shape<96, 64, 32>>("twice as many blocks"),
    compiled<Shape<96, 32, 32>>("little shared memory, most blocks"),
    compiled<Shape<128, 128, 32>>("K and V move once for each 128 queries"),
    compiled<Shape<128, 64, 32>>("twice as many blocks"),
    compiled<Shape<128, 32, 32>>("little shared memory, most blocks"),
};

/// Steps 2 to 7. Width, Br, Bc, rows per thread.
template <template <int...> class Shape>
constexpr CompiledShape register_tiles_shapes[] = {
    compiled<Shape<32, 128, 64, 8>>("8 x 8 scores a thread"),
    compiled<Shape<32, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<Shape<64, 128, 64, 8>>("8 x 8 scores and outputs a thread"),
    compiled<Shape<64, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<Shape<96, 64, 64, 4>>("4 x 8 scores and 4 x 12 outputs a thread"),
    compiled<Shape<96, 32, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 64, 32, 4>>("4 x 4 scores and 4 x 16 outputs a thread"),
    compiled<Shape<128, 32, 32, 4>>("twice as many blocks, little shared memory"),
};

/// Step 8 and more/options.cuh. Width, Br, Bc, rows per thread, lanes per row, blocks per SM for
/// which the compiler leaves registers; after the speed the blocks per SM where more fit. 128 x 64
/// at d = 128 reaches 0.95 with many keys. With few it is slower, as its blocks take longer to
/// start than choices() assumes: 0.9 stands for both.
template <template <int...> class Shape>
constexpr CompiledShape tuned_shapes[] = {
    compiled<Shape<32, 128, 64, 8, 8, 2>>("8 x 8 scores a thread, two blocks on an SM"),
    compiled<Shape<32, 64, 32, 4, 8, 4>>("twice as many blocks"),
    compiled<Shape<64, 128, 64, 8, 8, 2>>("8 x 8 scores and outputs a thread, two blocks on an SM"),
    compiled<Shape<64, 64, 64, 4, 8, 3>>("twice as many blocks, three on an SM", 0.92),
    compiled<Shape<64, 64, 32, 4, 8, 3>>("little shared memory", 0.86),
    compiled<Shape<96, 128, 64, 4, 8>>("4 x 12 outputs a thread; K and V move half as often"),
    compiled<Shape<96, 64, 64, 4, 8, 2>>("twice as many blocks, two blocks on an SM"),
    compiled<Shape<96, 64, 32, 4, 8, 3>>("little shared memory"),
    compiled<Shape<128, 128, 128, 8, 16>>("8 x 8 scores and outputs a thread"),
    compiled<Shape<128, 128, 64, 8, 16>>("less shared memory", 0.9),
    compiled<Shape<128, 64, 32, 4, 8, 2>>("twice as many blocks, three on an SM", 0.84, 3),
    compiled<Shape<128, 32, 32, 4, 8>>("little shared memory", 0.72, 4),
};

/// more/lorentz.cuh and more/centroid.cuh: those of step 8 that suit most problems, and the
/// smallest.
template <template <int...> class Shape>
constexpr CompiledShape distance_shapes[] = {
    compiled<Shape<32, 128, 64, 8, 8, 2>>("8 x 8 scores a thread, two blocks on an SM"),
    compiled<Shape<32, 64, 32, 4, 8, 4>>("twice as many blocks"),
    compiled<Shape<64, 128, 64, 8, 8, 2>>("8 x 8 scores and outputs a thread, two blocks on an SM"),
    compiled<Shape<64, 64, 32, 4, 8, 3>>("little shared memory"),
    compiled<Shape<96, 64, 64, 4, 8, 2>>("4 x 8 scores a thread, two blocks on an SM"),
    compiled<Shape<96, 64, 32, 4, 8, 3>>("little shared memory"),
    compiled<Shape<128, 128, 64, 8, 16>>("8 x 8 outputs a thread"),
    compiled<Shape<128, 32, 32, 4, 8>>("little shared memory"),
};

}  // namespace
}  // namespace flash::fa2_forward
