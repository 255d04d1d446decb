// 07 FlashAttention-2, backward: the tile sizes that are compiled, why to choose them (--list), and
// their speed relative to the first of the width, as measured with --tune on an H200 (left out: 3/4
// of the line before). Width, Br, Bc, lanes per row of scores, lanes per row of dK.
#pragma once

#include "07_fa2_backward/parts.cuh"

namespace flash::fa2_backward {
namespace {

/// Step 1. At the end of a line: warps, halves.
template <template <int...> class Shape>
constexpr CompiledShape two_kernels_shapes[] = {
    compiled<Shape<32, 64, 128, 16, 8, 8, 1>>("4 x 8 scores a thread"),
    compiled<Shape<32, 32, 64, 8, 8, 4, 1>>("little shared memory, twice as many blocks"),
    compiled<Shape<64, 64, 128, 16, 8, 8, 1>>("4 x 8 scores and gradients a thread"),
    compiled<Shape<64, 32, 32, 8, 16, 4, 1>>("little shared memory"),
    compiled<Shape<96, 32, 64, 8, 8, 4, 1>>("4 x 12 gradients a thread"),
    compiled<Shape<128, 64, 64, 8, 16, 8, 1>>("4 x 8 gradients a thread"),
    compiled<Shape<128, 32, 32, 8, 16, 4, 1>>("less shared memory"),
    compiled<Shape<128, 16, 32, 8, 16, 4, 1>>("little shared memory"),
};

/// Steps 2 and 3.
template <template <int...> class Shape>
constexpr CompiledShape two_halves_shapes[] = {
    compiled<Shape<32, 64, 128, 16, 8>>("8 x 8 scores a thread"),
    compiled<Shape<32, 32, 64, 8, 8>>("little shared memory, twice as many blocks"),
    compiled<Shape<64, 64, 128, 16, 8>>("8 x 8 scores and gradients a thread"),
    compiled<Shape<64, 64, 64, 8, 16>>("twice as many blocks", 0.88),
    compiled<Shape<64, 32, 32, 8, 16>>("little shared memory", 0.62),
    compiled<Shape<96, 64, 64, 8, 8>>("4 x 12 gradients a thread"),
    compiled<Shape<96, 32, 64, 8, 8>>("less shared memory"),
    compiled<Shape<128, 64, 64, 8, 16>>("8 x 8 gradients a thread"),
    compiled<Shape<128, 32, 64, 8, 16>>("less shared memory", 0.74),
    compiled<Shape<128, 32, 32, 8, 16>>("twice as many blocks", 0.62),
    compiled<Shape<128, 16, 32, 8, 16>>("little shared memory", 0.43),
};

/// more/options.cuh and more/bias_gradient.cuh.
template <template <int...> class Shape>
constexpr CompiledShape options_shapes[] = {
    compiled<Shape<32, 64, 128, 16, 4>>(
        "8 x 8 scores a thread; 4 x 8 gradients, since 8 x 4 would spill"),
    compiled<Shape<32, 32, 64, 8, 8>>("little shared memory, twice as many blocks"),
    compiled<Shape<64, 64, 128, 16, 8>>("8 x 8 scores and gradients a thread"),
    compiled<Shape<64, 64, 64, 8, 16>>("twice as many blocks", 0.88),
    compiled<Shape<64, 32, 32, 8, 16>>("little shared memory", 0.62),
    compiled<Shape<96, 64, 64, 8, 8>>("4 x 12 gradients a thread"),
    compiled<Shape<96, 32, 64, 8, 8>>("less shared memory"),
    compiled<Shape<128, 64, 64, 8, 16>>("8 x 8 gradients a thread"),
    compiled<Shape<128, 32, 64, 8, 16>>("less shared memory", 0.74),
    compiled<Shape<128, 32, 32, 8, 16>>("twice as many blocks", 0.62),
    compiled<Shape<128, 16, 32, 8, 16>>("little shared memory", 0.43),
};

/// more/lorentz.cuh and more/centroid.cuh: those of step 3 that suit most problems, and the
/// smallest.
template <template <int...> class Shape>
constexpr CompiledShape distance_shapes[] = {
    compiled<Shape<32, 64, 128, 16, 8>>("8 x 8 scores a thread"),
    compiled<Shape<32, 32, 64, 8, 8>>("little shared memory, twice as many blocks"),
    compiled<Shape<64, 64, 128, 16, 8>>("8 x 8 scores and gradients a thread"),
    compiled<Shape<64, 32, 32, 8, 16>>("little shared memory"),
    compiled<Shape<96, 64, 64, 8, 8>>("4 x 12 gradients a thread"),
    compiled<Shape<128, 64, 64, 8, 16>>("8 x 8 gradients a thread"),
    compiled<Shape<128, 16, 32, 8, 16>>("little shared memory"),
};

}  // namespace
}  // namespace flash::fa2_backward
