// 08 Tensor cores, backward from step 2 on, and Hopper: the sum of dQ in HBM, and the kernel after.
//
// dQ_accum [B, H, rows of L_and_D / 16][Width / 8][32 lanes][4 floats]: accumulators in the order
// of the lanes that hold them. A 16 x 8 fragment is 128 adjacent floats, so that a warp adds to 512
// adjacent bytes at a time; lane 4 g + t has (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
// Fragment query / 16 * (Width / 8) + col / 8 has (query, col). convert_kernel reads it.
#pragma once

#include "08_tensor_cores/parts/prepare.cuh"

namespace flash::tensor_cores {
namespace {

/// One thread: dQ = scale dQ_accum, in 16 bits, in 8 columns, `chunk`, of rows g and g + 8 of the
/// 16 rows from row0 on. In dQ_accum they are neighbours, and the 16 rows are number `row_group`.
template <int Width, class T>
__device__ void convert_rows(const Matrix<T>& dQ, const Matrix<const float>& dQ_accum, float scale,
                             int row0, int row_group, int g, int chunk) {
  float rows[2][8];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const float4 held = dQ_accum.as<float4>(
        0, (row_group * Width / 8 + chunk) * 128 + (4 * g + t) * 4);  // by lane 4 g + t
    rows[0][2 * t] = scale * held.x;
    rows[0][2 * t + 1] = scale * held.y;
    rows[1][2 * t] = scale * held.z;
    rows[1][2 * t + 1] = scale * held.w;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row0 + g + 8 * r;
    if (i >= dQ.rows) return;
    const float(&dq)[8] = rows[r];
    dQ.template as<uint4>(i, 8 * chunk) = make_uint4(pack<T>(dq[0], dq[1]), pack<T>(dq[2], dq[3]),
                                                     pack<T>(dq[4], dq[5]), pack<T>(dq[6], dq[7]));
  }
}

/// dQ, by convert_rows(). Early: it may begin while the step's kernel ends.  Grid: B*H * blocks of
/// a head.
template <class T, int Width, bool Early>
__global__ void __launch_bounds__(PREPARE_THREADS)
    convert_kernel(Problem problem, Tensor<const float> dQ_accum_all, Tensor<T> dQ_all) {
  constexpr int CHUNKS = Width / 8;
  const BlockOfHead block(problem.B * problem.H);
  const int b = block.head / problem.H, h = block.head % problem.H;
  const int index = block.index * PREPARE_THREADS + threadIdx.x;
  const int chunk = index % CHUNKS, g = index / CHUNKS % 8, row_group = index / CHUNKS / 8;
  if (16 * row_group + g >= problem.Nq || 8 * chunk >= problem.d) return;
  // Read after write: the step's kernel has added everything.
  if constexpr (Early) griddepcontrol_wait();
  convert_rows<Width>(dQ_all.head(b, h), dQ_accum_all.head(b, h), problem.scale, 16 * row_group,
                      row_group, g, chunk);
}

/// The number of its blocks for a head: a thread takes two rows of 8 columns.
inline unsigned blocks_of_convert(const Attention& a, int width) {
  return blocks_for(static_cast<int>(a.workspace("LD").shape[3]) / 2 * (width / 8),
                    PREPARE_THREADS);
}

template <class T, int Width, bool Early = false>
void convert(const Attention& a, const TensorRef& dQ_accum) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_of_convert(a, Width) * static_cast<unsigned>(p.B * p.H);
  launch("convert",
         {.grid = dim3(blocks), .block = dim3(PREPARE_THREADS), .shared_bytes = 0, .early = Early},
         convert_kernel<T, Width, Early>, p, view<const float>(dQ_accum), view<T>(a.dQ));
}

}  // namespace
}  // namespace flash::tensor_cores
