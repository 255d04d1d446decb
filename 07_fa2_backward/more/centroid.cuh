// 07 FlashAttention-2, backward: the centroid as the output of hyperbolic attention
// (06_fa2_forward/more/hyperbolic.md).
//
//   d_sum_i = dO_i + D_i y_i, d_time_i = -D_i y0_i   with y_i = O_i, from centroid_kernel  (9.28)
//   then the kernel of lorentz.cuh, with
//     dP = d_sum_i V_j^T + d_time_i v0_j                                              (9.29)
//     G = -P o dP / sqrt(x (x + 2))                                                     (9.21)
//     dV_j += P^T d_sum_i + sum_i P_ij d_time_i V_j / v0_j                            (9.29)
//
// New since lorentz:
// - A kernel computes d_sum and d_time, the gradient of the weighted sum of V and of its time
//   component. The next kernel reads them where lorentz reads dO and D, and their tiles are smem.dO
//   and smem.D.
// - dP and dV have a term in time. The rows of P dP sum to 0, so dP - D becomes dP.
//
// Grid, block, shapes: as lorentz. HBM: as lorentz, with d_sum for dO. In addition O and dO once,
//   D once more, d_sum and d_time written once, and v0 with V. Workspace: D, then d_time in its
//   place; d_sum; q0, k0, v0.
#pragma once

#include "07_fa2_backward/more/lorentz.cuh"
#include "07_fa2_backward/shapes.hpp"

namespace flash::fa2_backward::more_centroid {
namespace {

/// The shape of lorentz, with room for v0 [Bc, 2].
template <int Width, int Br, int Bc, int ScoreLanes, int KeyLanes>
struct DistanceShape : more_lorentz::DistanceShape<Width, Br, Bc, ScoreLanes, KeyLanes> {
  static constexpr int SHARED_FLOATS =
      more_lorentz::DistanceShape<Width, Br, Bc, ScoreLanes, KeyLanes>::SHARED_FLOATS + 2 * Bc;
};

/// (9.28)  The gradient of the weighted sum whose centroid is y = O: d_sum = dO + D y, and d_time
/// = -D y0, which takes D's place. A warp per query.  Grid: as prepare_kernel.
__global__ void __launch_bounds__(PREPARE_WARPS* WARP)
    centroid_kernel(Problem problem, Tensor<const float> O_all, Tensor<const float> dO_all,
                    Tensor<float> D_all, Tensor<float> d_sum_all) {
  const int heads = problem.B * problem.H;
  const int b = blockIdx.x % heads / problem.H, h = blockIdx.x % heads % problem.H;
  const int i = blockIdx.x / heads * PREPARE_WARPS + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  if (i >= problem.Nq) return;  // the whole warp leaves
  const Matrix<const float> O = O_all.head(b, h), dO = dO_all.head(b, h);
  const Matrix<float> d_sum = d_sum_all.head(b, h);
  const float D = D_all.head_vector(b, h)(i);
  float square = 0.0f;
  for (int c = lane; c < problem.d; c += WARP) {
    const float y = O(i, c);
    square += y * y;
    d_sum(i, c) = dO(i, c) + D * y;
  }
#pragma unroll
  for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
    square += __shfl_xor_sync(ALL_LANES, square, lanes);
  // Write after read: all lanes have read D, which lane 0 overwrites.
  __syncwarp();
  if (lane == 0) D_all.head_vector(b, h)(i) = -D * sqrtf(1.0f + square);
}

template <int... Sizes>
void start(DistanceShape<Sizes...>, const Attention& a) {
  const Problem& p = a.problem;
  launch_prepare(a, /*clear_dQ=*/true);
  const unsigned query_blocks = blocks_for(p.Nq, PREPARE_WARPS) * static_cast<unsigned>(p.B * p.H);
  launch("centroid", {dim3(query_blocks), dim3(PREPARE_WARPS * WARP)}, centroid_kernel, p,
         view<const float>(a.O), view<const float>(a.dO), view<float>(a.workspace("D")),
         view<float>(a.workspace("d_sum")));
  Tensors tensors = tensors_of(a);
  tensors.dO = view<const float>(a.workspace("d_sum"));
  more_lorentz::launch_backward<DistanceShape<Sizes...>>("fa2_centroid", a, tensors,
                                                         view<const float>(a.workspace("v0")));
}

std::vector<WorkspaceSpec> workspace_with_sum(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> all = workspace(p, pass);
  if (pass == Pass::backward) all.push_back({"d_sum", {p.B, p.H, p.Nq, p.d}});
  return all;
}

const Variant variant{
    .name = "centroid",
    .idea = "values as points: the gradient of their weighted sum and of its time component",
    .backward = start_one_of<distance_shapes<DistanceShape>>,
    .workspace = workspace_with_sum,
    .refuse = refuse,
    .tiles = choices_of<distance_shapes<DistanceShape>>,
    .atomic_dQ = true,
    .row_multiple = 4,
    .takes = general_problem | Features::lorentz | Features::centroid,
    .needs = Features::centroid};

}  // namespace
}  // namespace flash::fa2_backward::more_centroid
