// 08 Tensor cores, Hopper backward, for few blocks: ordered.cuh with blocks that share a group of
// heads where whole groups make too few blocks.
//
// New since ordered.cuh: a block loops over some of the query heads that share its key/value head,
// a *subgroup*.
// - Short sequences with few key/value heads make fewer tiles of keys than there are SMs. With n
//   subgroups per group there are n times as many blocks. They read fewer heads each, so that L2
//   holds what blocks share, even if under a mask they drift apart.
// - For the kernel a subgroup is a group: the host passes it a problem with n times as many
//   key/value heads (divided()). The kernel differs in two places: which K and V a block loads, and
//   where its dK and dV go.
// - dK and dV of a subgroup are partial sums. Blocks write them in fp32, and sum_partial_kernel
//   adds them up in a fixed order.
// - n comes from an estimate that depends on the problem alone, as the workspace does.
//
// Grid: Tc*B*Hkv*n. Block, shapes: as ordered.  HBM: as ordered, but K and V n times, and the
//   partial sums written and read once.  Workspace: as ordered, and the partial sums.
#pragma once

#include "08_tensor_cores/hopper_backward/more/turns.cuh"

namespace flash::tensor_cores::hopper_backward_more_divided {
namespace {

/// TurnShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct BackwardShape : TurnShape<Sizes...> {};

/// Writes the warp's 16 rows of a partial sum, straight from accumulators: in fp32 the lanes of a
/// quad write a whole sector.
template <int ColFragments>
__device__ void write_in_fp32(const Matrix<float>& sum, int row0,
                              const Accumulators<1, ColFragments>& C) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < ColFragments; ++n) {
      sum.as<float2>(row0 + 8 * r + lane / 4, 8 * n + fragment::c_col(lane, 0)) =
          make_float2(C.elements[0][n][2 * r], C.elements[0][n][2 * r + 1]);
    }
  }
}

/// Where `divided` leaves dK and dV: partial sums, one per subgroup, in fp32 [B, Hkv * subgroups,
/// padded Nk, Width].
struct PartialGradients {
  int subgroups;  // per group
  Tensor<float> dK, dV;

  __device__ int kv_head(int subgroup) const { return subgroup / subgroups; }

  template <class Rule, class T, class Work, class Staging, class Gradient>
  __device__ void write(const Rule&, const BackwardTensors<T>&, const Work& work,
                        const Staging& staging, const Gradient& dK_of_warp,
                        const Gradient& dV_of_warp) const {
    const int row0 = work.key0 + staging.row0;
    write_in_fp32(dV.head(work.b, work.group), row0, dV_of_warp);
    write_in_fp32(dK.head(work.b, work.group), row0, dK_of_warp);
  }
};

/// Sums 8 columns of a row over `count` subgroups from `first` on, in their order, and stores
/// them in 16 bits.
template <class T>
__device__ void sum_chunk(const Tensor<const float>& partial, int count, int b, int first,
                          const Matrix<T>& sum, int row, int col) {
  float total[8] = {};
  for (int n = 0; n < count; ++n) {
    const Matrix<const float> head = partial.head(b, first + n);
    const float4 left = head.as<float4>(row, col), right = head.as<float4>(row, col + 4);
    const float held[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#pragma unroll
    for (int c = 0; c < 8; ++c) total[c] += held[c];
  }
  sum.template as<uint4>(row, col) =
      make_uint4(pack<T>(total[0], total[1]), pack<T>(total[2], total[3]),
                 pack<T>(total[4], total[5]), pack<T>(total[6], total[7]));
}

/// dK and dV, summed over the subgroups. A thread takes 8 columns of a row.  Grid: B*Hkv * blocks
/// of a head.
template <class T, int Width>
__global__ void __launch_bounds__(PREPARE_THREADS)
    sum_partial_kernel(int count, Tensor<const float> dK_partial, Tensor<const float> dV_partial,
                       Tensor<T> dK, Tensor<T> dV) {
  constexpr int CHUNKS = Width / 8;
  const BlockOfHead block(dK.batches * dK.heads);
  const int b = block.head / dK.heads, head = block.head % dK.heads;
  const int index = block.index * PREPARE_THREADS + threadIdx.x, row = index / CHUNKS,
            col = index % CHUNKS * 8;
  if (row >= dK.rows || col >= dK.cols) return;
  sum_chunk(dK_partial, count, b, head * count, dK.head(b, head), row, col);
  sum_chunk(dV_partial, count, b, head * count, dV.head(b, head), row, col);
}

// ---- The host ----------------------------------------------------------------------------------

/// The problem as the blocks see it: each subgroup is a group, and has a key/value head.
inline Problem divided(Problem p, int subgroups) {
  p.Hkv *= subgroups;
  return p;
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef &dK = a.workspace("dK_partial"), &dV = a.workspace("dV_partial");
    const int subgroups = static_cast<int>(dK.shape[1]) / p.Hkv;
    by_rule(a, [&](auto rule) {
      rule.problem = divided(p, subgroups);
      start_turns<T, Shape>("backward_divided", a, rule,
                            PartialGradients{subgroups, view<float>(dK), view<float>(dV)});
    });
    const unsigned blocks =
        blocks_for(p.Nk, PREPARE_THREADS / (Shape::Width / 8)) * static_cast<unsigned>(p.B * p.Hkv);
    launch("sum_partial", {dim3(blocks), dim3(PREPARE_THREADS)},
           sum_partial_kernel<T, Shape::Width>, subgroups, view<const float>(dK),
           view<const float>(dV), view<T>(a.dK), view<T>(a.dV));
    convert<T, Shape::Width>(a, a.workspace("dQ_accum"));
  });
}

constexpr auto& shapes = warpgroup_shapes<BackwardShape>;

/// The number of subgroups per group that is estimated to take the least time: 1, unless the blocks
/// of whole groups leave SMs idle, or read more than L2 holds. Always estimated for an H200: the
/// workspace, and with it the number, depends on the problem alone.
int best_subgroups(const Problem& p) {
  const DeviceLimits h200;
  const std::int64_t rows = std::int64_t{p.B} * p.Hkv * p.Nk;
  if (p.d > 128 || p.group_size() == 1 || rows / ROW_BLOCK > 2 * h200.multiprocessors)
    return 1;  // two tiles per SM suffice
  const int at_once = std::max(1, h200.multiprocessors * ROW_BLOCK / p.Nk);  // groups
  const auto time_of = [&](const Problem& q) {
    // Under a mask the blocks of a group drift apart. If L2 does not hold Q and dO of all its
    // heads, they read them from HBM and take a fifth longer.
    const std::int64_t bytes = std::int64_t{q.Nq} * q.group_size() * width_of_sum(q) * (2 + 2);
    const double slower = q.causal && heads_in_L2(at_once, bytes) < at_once ? 1.2 : 1;
    return slower * least_time(shapes, q, Pass::backward, h200);
  };
  int best = 1;
  double least = time_of(p);
  for (int n = 2; n <= std::min(p.group_size(), h200.multiprocessors); ++n) {
    if (p.group_size() % n != 0) continue;
    // In pairs of a query and a key, which take an SM 0.27 ns at d = 128: the launch of
    // sum_partial_kernel, 3 us, and a row of dK and of dV, written and read, 2 KB at 3.5 TB/s.
    const double summing = 11'000 + 2.2 * static_cast<double>(rows * n);
    const double time = time_of(divided(p, n)) + summing;
    if (time > 0.9 * least) continue;  // smaller differences are beyond such an estimate
    best = n;
    least = time;
  }
  return best;
}

const Variant variant = [] {
  Variant step = general_hopper_backward_step<shapes>(
      "divided", "blocks share a group of heads where whole groups make too few blocks",
      [](const FullProblem& p, Pass pass) {
        return pass == Pass::backward && best_subgroups(p) > 1;
      });
  step.tiles = [](const Problem& p, Pass pass, const DeviceLimits& limits) {
    return choices(shapes, divided(p, best_subgroups(p)), pass, limits);
  };
  step.workspace = [](const Problem& p, Pass pass) {
    std::vector<WorkspaceSpec> list = workspace_of_turns(p, pass);
    if (pass == Pass::forward) return list;
    const std::int64_t rows = std::int64_t{blocks_for(p.Nk, ROW_BLOCK)} * ROW_BLOCK;
    for (const char* const name : {"dK_partial", "dV_partial"})
      list.push_back({name, {p.B, p.Hkv * best_subgroups(p), rows, width_of_sum(p)}});
    return list;
  };
  step.atomic_dQ = false;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_divided
