// 08 Tensor cores, backward: the query heads of a group divided among several blocks, where whole groups make too few blocks.
// A part is treated as a separate group, whose key/value head happens to be the same as the next part's (KeyWork): each part
// writes its dK and dV in fp32, and sum_parts_kernel adds them up in a fixed order. Hopper step 5 uses it: its kernel calls
// write_gradients(), its host code the rest.
#pragma once

#include "08_tensor_cores/parts/prepare.cuh"

namespace flash::tensor_cores {
namespace {

/// The problem as the blocks see it: with a key/value head per part.
inline Problem divided(Problem p, int parts) {
  p.Hkv *= parts;
  return p;
}

/// The number of parts by which a group is estimated to take the least time: 1, unless the blocks of whole groups leave SMs
/// idle. Always estimated for an H200: the workspace, and with it the number, depends on the problem alone.
template <const auto& shapes>
int parts_of_group(const Problem& p) {
  const DeviceLimits h200;
  const std::int64_t rows = std::int64_t{p.B} * p.Hkv * p.Nk;
  if (p.d > 128 || p.group_size() == 1 || rows / ROW_BLOCK > 2 * h200.multiprocessors) return 1;  // two tiles per SM suffice
  int best = 1;
  double least = least_time(shapes, p, Pass::backward, h200);
  for (int parts = 2; parts <= std::min(p.group_size(), h200.multiprocessors); ++parts) {
    if (p.group_size() % parts != 0) continue;
    // In pairs of a query and a key, which take an SM 0.27 ns at d = 128: the launch of sum_parts_kernel, 3 us, and a row of dK
    // and of dV that is written and read, 2 KB at 3.5 TB/s.
    const double summing = 11'000 + 2.2 * static_cast<double>(rows * parts);
    const double time = least_time(shapes, divided(p, parts), Pass::backward, h200) + summing;
    if (time > 0.9 * least) continue;  // smaller differences are beyond such an estimate
    best = parts;
    least = time;
  }
  return best;
}

/// The tile sizes of a step that divides groups: for a backward pass, those that suit the problem as the blocks see it.
template <const auto& shapes>
auto tiles_of_parts(const Problem& p, Pass pass, const DeviceLimits& limits) {
  return pass == Pass::forward ? forward_pass().tiles(p, pass, limits)
                               : choices(shapes, divided(p, parts_of_group<shapes>(p)), pass, limits);
}

/// The gradients of the parts in fp32 [B, Hkv * count, padded Nk, Width].
struct GroupParts {
  int count;
  Tensor<float> dK, dV;
};

inline GroupParts group_parts(const Attention& a, int count) {
  if (count == 1) return {1, {}, {}};
  return {count, view<float>(a.workspace("dK_parts")), view<float>(a.workspace("dV_parts"))};
}

inline void add_group_parts(std::vector<WorkspaceSpec>& list, const Problem& p, int count) {
  if (count == 1) return;
  const std::int64_t rows = std::int64_t{blocks_for(p.Nk, ROW_BLOCK)} * ROW_BLOCK;
  for (const char* const name : {"dK_parts", "dV_parts"})
    list.push_back({name, {p.B, std::int64_t{p.Hkv} * count, rows, width_of_sum(p)}});
}

/// Writes the warp's 16 rows of a part, straight from accumulators: in fp32 the lanes of a quad write a whole sector.
template <int ColFragments>
__device__ void write_part(const Matrix<float>& part, int row0, const Accumulators<1, ColFragments>& C) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < ColFragments; ++n) {
      part.as<float2>(row0 + 8 * r + lane / 4, 8 * n + fragment::c_col(lane, 0)) =
          make_float2(C.elements[0][n][2 * r], C.elements[0][n][2 * r + 1]);
    }
  }
}

/// The end of consume(): a warp's rows of dK and dV, as this part's contribution or, with whole groups, as the gradients.
template <bool Divided, class T, class Shared, class Work, int ColFragments>
__device__ void write_gradients(const Shared& shared, const BackwardTensors<T>& all, const GroupParts& parts, const Work& work,
                                int warp_row, const Accumulators<1, ColFragments>& dK,
                                const Accumulators<1, ColFragments>& dV) {
  const int row0 = work.key0 + warp_row;
  if constexpr (Divided) {
    write_part(parts.dV.head(work.b, work.group), row0, dV);
    write_part(parts.dK.head(work.b, work.group), row0, dK);
  } else {
    write_rows(all.dV.head(work.b, work.kv_head), row0, dV, shared.V().below(warp_row));
    write_rows(all.dK.head(work.b, work.kv_head), row0, dK, shared.K().below(warp_row));
  }
}

/// Sums 8 columns of a row over the parts from head `first` on, in their order, and stores them in 16 bits.
template <class T>
__device__ void sum_parts(const Tensor<const float>& parts, int count, int b, int first, const Matrix<T>& sum, int row, int col,
                          bool aligned) {
  float total[8] = {};
  for (int part = 0; part < count; ++part) {
    const Matrix<const float> head = parts.head(b, first + part);
    const float4 left = head.as<float4>(row, col), right = head.as<float4>(row, col + 4);
    const float held[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#pragma unroll
    for (int c = 0; c < 8; ++c) total[c] += held[c];
  }
  if (aligned) {
    sum.template as<uint4>(row, col) = make_uint4(pack<T>(total[0], total[1]), pack<T>(total[2], total[3]),
                                                  pack<T>(total[4], total[5]), pack<T>(total[6], total[7]));
  } else {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (col + c < sum.cols) sum(row, col + c) = T(total[c]);
    }
  }
}

/// dK and dV as the sums of their parts. A thread takes 8 columns of a row.  Grid: B*Hkv * blocks of a head.
template <class T, int Width>
__global__ void __launch_bounds__(PREPARE_THREADS)
    sum_parts_kernel(int count, Tensor<const float> dK_parts, Tensor<const float> dV_parts, Tensor<T> dK, Tensor<T> dV,
                     bool aligned) {
  constexpr int CHUNKS = Width / 8;
  const PartOfHead block(dK.batches * dK.heads);
  const int b = block.head / dK.heads, head = block.head % dK.heads;
  const int index = block.index * PREPARE_THREADS + threadIdx.x, row = index / CHUNKS, col = index % CHUNKS * 8;
  if (row >= dK.rows || col >= dK.cols) return;
  sum_parts(dK_parts, count, b, head * count, dK.head(b, head), row, col, aligned);
  sum_parts(dV_parts, count, b, head * count, dV.head(b, head), row, col, aligned);
}

template <class T, int Width>
void sum_parts(const Attention& a, int count) {
  if (count == 1) return;
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nk, PREPARE_THREADS / (Width / 8)) * static_cast<unsigned>(p.B * p.Hkv);
  launch("sum_parts", {dim3(blocks), dim3(PREPARE_THREADS)}, sum_parts_kernel<T, Width>, count,
         view<const float>(a.workspace("dK_parts")), view<const float>(a.workspace("dV_parts")), view<T>(a.dK), view<T>(a.dV),
         aligned(p));
}

}  // namespace
}  // namespace flash::tensor_cores
