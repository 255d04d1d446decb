// 06 FlashAttention-2, forward: the centroid as the output of hyperbolic attention
// (06_fa2_forward/more/hyperbolic.md).
//
// The kernel of lorentz.cuh, with rows of V that are points, too:
//     o0 = alpha o0 + P v0                                  [Br, Bc] x [Bc]             (9.25)
//   n = the Lorentz norm of (o0, O);   O = O / n,   L = scale m + ln n  (9.25), (9.26)
//
// New since lorentz:
// - The time components v0 of its rows come with the tiles of K, and o0 is one more sum per row.
// - The Lorentz norm of the weighted sum, in which o0 counts positive, replaces the sum of the
//   weights l.
//
// Grid, block, shapes: as lorentz. Shared memory: as lorentz, and v0 [Bc, 2].
// HBM: as lorentz. V once more, v0 written once, and read as often as V.  Workspace: q0, k0, v0.
#pragma once

#include "06_fa2_forward/more/lorentz.cuh"
#include "06_fa2_forward/shapes.hpp"

namespace flash::fa2_forward::more_centroid {
namespace {

/// The shape of lorentz, with room for v0.
template <int Width, int Br, int Bc, int ThreadRows, int Lanes, int Blocks = 1>
struct ForwardShape : more_lorentz::ForwardShape<Width, Br, Bc, ThreadRows, Lanes, Blocks> {
  static constexpr int SHARED_FLOATS =
      more_lorentz::ForwardShape<Width, Br, Bc, ThreadRows, Lanes, Blocks>::SHARED_FLOATS + 2 * Bc;
};

template <int... Sizes>
void start(ForwardShape<Sizes...>, const Attention& a) {
  const TensorRef& v0 = a.workspace("v0");
  more_lorentz::launch_times(a.V, v0);
  more_lorentz::launch_forward<ForwardShape<Sizes...>>("fa2_centroid", a, view<const float>(v0));
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> all = more_lorentz::workspace(p, pass);
  all.push_back({"v0", {p.B, p.Hkv, p.Nk, 2}});
  return all;
}

const Variant variant{
    .name = "centroid",
    .idea = "values as points of the hyperboloid: the Lorentz norm of the weighted sum replaces l",
    .forward = start_one_of<distance_shapes<ForwardShape>>,
    .workspace = workspace,
    .refuse = more_lorentz::refuse,
    .tiles = choices_of<distance_shapes<ForwardShape>>,
    .row_multiple = 4,
    .takes = general_problem | Features::lorentz | Features::centroid,
    .needs = Features::centroid};

}  // namespace
}  // namespace flash::fa2_forward::more_centroid
