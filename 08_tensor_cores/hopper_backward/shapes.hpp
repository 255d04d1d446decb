// 08 Tensor cores, Hopper backward: the tile sizes that are compiled (Width, Br, Bc), why to choose
// them (--list), and their speed relative to the first of the width (H200; Percent: at width 32).
#pragma once

#include "08_tensor_cores/parts/launch.cuh"

namespace flash::tensor_cores {
namespace {

template <template <int...> class Shape, int Percent = 65>
constexpr CompiledShape warpgroup_shapes[] = {
    compiled<Shape<32, 128, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<32, 64, 64>>("twice as many blocks, little shared memory", Percent / 100.0),
    compiled<Shape<64, 128, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<64, 64, 64>>("twice as many blocks, little shared memory", 0.65),
    compiled<Shape<96, 64, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<96, 64, 64>>("twice as many blocks, little shared memory", 0.65),
    compiled<Shape<128, 64, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<128, 64, 64>>("twice as many blocks, little shared memory", 0.65),
};

}  // namespace
}  // namespace flash::tensor_cores
