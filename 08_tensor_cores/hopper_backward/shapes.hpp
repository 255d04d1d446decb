// 08 Tensor cores, Hopper backward: the tile sizes that are compiled (Width, Br, Bc), why to choose
// them (--list), and their speed relative to the first of the width (H200); which kernel the host
// chooses.
#pragma once

#include "08_tensor_cores/parts/before_and_after.cuh"
#include "08_tensor_cores/parts/launch.cuh"

namespace flash::tensor_cores {
namespace {

template <template <int...> class Shape>
constexpr CompiledShape warpgroup_shapes[] = {
    compiled<Shape<32, 128, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<32, 64, 64>>("twice as many blocks, little shared memory", 0.65),
    compiled<Shape<64, 128, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<64, 64, 64>>("twice as many blocks, little shared memory", 0.65),
    compiled<Shape<96, 64, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<96, 64, 64>>("twice as many blocks, little shared memory", 0.65),
    compiled<Shape<128, 64, 128>>("two warpgroups share Q and dO"),
    compiled<Shape<128, 64, 64>>("twice as many blocks, little shared memory", 0.65),
};

/// "" or why no kernel is compiled for the problem.
inline std::string refuse_wide_heads(const Problem& p) {
  if (p.d <= 128) return refuse_backward_with_sum(p, width_of_sum(p));
  return "--head-dim is " + std::to_string(p.d) + "; allowed: 1 to 128; --variant relay takes 256";
}

/// Whether the steps of the ladder take it: no bias and a scale above 0.
inline bool is_of_ladder(const FullProblem& p) {
  return (features_of(p) & ~plain_problem) == Features::none;
}

enum class BackwardKernel { early, general, options_early, ordered, relay };

/// The fastest kernel for Hopper, as measured (H200), but where blocks are few: more/divided.cuh.
inline BackwardKernel fastest_kernel(const FullProblem& p) {
  if (p.d > 128) return BackwardKernel::relay;
  if (!p.is_general()) return BackwardKernel::options_early;
  // Under a mask the blocks of a large group drift apart, and L2 loses its heads. Turns prevent it.
  if (p.d > 64 && p.causal && p.group_size() > 6 && p.Nq <= 4096) return BackwardKernel::ordered;
  return is_of_ladder(p) ? BackwardKernel::early : BackwardKernel::general;
}
/// As a function for a Variant.
template <BackwardKernel kernel>
bool is_fastest(const FullProblem& p, Pass pass) {
  return pass == Pass::backward && fastest_kernel(p) == kernel;
}

/// A step of the ladder.
template <const auto& shapes>
Variant hopper_backward_step(const char* name, const char* idea,
                             bool (*fastest)(const FullProblem&, Pass) = nullptr) {
  Variant step = plain_backward_step<shapes, /*SumsInHbm=*/true>(name, idea);
  step.refuse = refuse_wide_heads;
  step.refuse_on = refuse_unless_sm90;
  step.fastest = fastest;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
