// 08 Tensor cores, backward, for options.cuh here and in ../../hopper_backward. It extends
// parts/before_and_after.cuh: to the tiles of queries in a window, and prepare() and convert() to a
// ragged batch. In L_and_D and dQ_accum each sequence is padded separately and begins at a multiple
// of ROW_BLOCK.
#pragma once

#include "08_tensor_cores/parts/before_and_after.cuh"
#include "common/parts/ragged.cuh"

namespace flash::tensor_cores {
namespace {

/// The row of a query in L_and_D and dQ_accum.
template <class Rule>
__device__ int row_of(const Rule& rule, int query) {
  if constexpr (Rule::RAGGED) query += (rule.offset(0, 0) / ROW_BLOCK + rule.sequence) * ROW_BLOCK;
  return query;
}

/// Enters the sequence that such a row belongs to. Returns the row's query, which is Nq or more in
/// rows that fill up a block.
__device__ inline int enter_row(RaggedRule& rule, int row) {
  const int count = rule.offsets.rows - 1;
  int step = 1, found = 0;
  while (step < count) step *= 2;
  for (; step > 0; step /= 2) {  // always the same number of steps: a warp does not diverge
    rule.sequence = min(found + step, count - 1);
    if (row_of(rule, 0) <= row) found = rule.sequence;
  }
  rule.sequence = found;
  rule.problem.Nq = rule.offset(1, 0) - rule.offset(0, 0);
  return row - row_of(rule, 0);
}

/// The tiles that a block of keys [key0, key0 + Bc) loops over, as QueryLoop: with a window they
/// have a last query, too.
template <class Shape>
struct TilesInWindow {
  int group, first_query, end_query, iterations;  // perhaps none

  __device__ TilesInWindow(const OptionsProblem& p, int kv_head, int key0)
      : group(kv_head),
        first_query(p.first_query(key0, Shape::Br)),
        end_query(p.end_query(min(key0 + Shape::Bc, p.Nk) - 1)),
        iterations(max(0, end_query - first_query + Shape::Br - 1) / Shape::Br * p.group_size()) {}

  __device__ QueryTile first(const Problem& p) const {
    return {group * p.group_size(), first_query};
  }
  __device__ QueryTile after(const Problem&, QueryTile at) const {
    return at.query0 + Shape::Br < end_query ? QueryTile{at.h, at.query0 + Shape::Br}
                                             : QueryTile{at.h + 1, first_query};
  }
};

// ---- Ragged batches ----

/// As prepare_kernel. Grid: H * blocks of a head.
template <class T, int Width, bool LInPowersOf2, bool NextIsEarly>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_ragged_kernel(RaggedRule rule, Tensor<const T> O_all, Tensor<const T> dO_all,
                          Tensor<const float> L_all, Tensor<float> L_and_D_all,
                          Tensor<float> dQ_accum_all) {
  if constexpr (NextIsEarly) griddepcontrol_launch_dependents();
  constexpr int LANES = LANES_OF_ROW<Width>, ROWS = PREPARE_THREADS / LANES;
  const BlockOfHead block(rule.problem.H);
  const int chunk = threadIdx.x % LANES, col = 8 * chunk;
  const int row = block.index * ROWS + threadIdx.x / LANES, i = enter_row(rule, row);
  float D = 0.0f;
  if (i < rule.problem.Nq && col < rule.problem.d) {
    const Matrix<const T> O = queries_of(rule, O_all).head(0, block.head);
    D = D_of_chunk(O, queries_of(rule, dO_all).head(0, block.head), i, col);
  }
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2)
    D += __shfl_xor_sync(ALL_LANES, D, distance);
  if (chunk == 0) {
    const Matrix<float> L_and_D = L_and_D_all.head(0, block.head);
    float L = -INFINITY;
    if (i < rule.problem.Nq) L = queries_of(rule, L_all).head_vector(0, block.head)(i);
    L_and_D(0, row) = L == -INFINITY ? INFINITY : LInPowersOf2 ? LOG2_E * L : L;
    L_and_D(1, row) = D;
  }
  clear_rows<ROWS, Width>(dQ_accum_all.head(0, block.head), block.index);
}

/// As convert_kernel. Grid: H * blocks of a head.
template <class T, int Width, bool Early>
__global__ void __launch_bounds__(PREPARE_THREADS)
    convert_ragged_kernel(RaggedRule rule, Tensor<const float> dQ_accum_all, Tensor<T> dQ_all) {
  constexpr int CHUNKS = Width / 8;
  const BlockOfHead block(rule.problem.H);
  const int index = block.index * PREPARE_THREADS + threadIdx.x;
  const int chunk = index % CHUNKS, g = index / CHUNKS % 8, row_group = index / CHUNKS / 8;
  const int i0 = enter_row(rule, 16 * row_group);
  if (i0 + g >= rule.problem.Nq || 8 * chunk >= rule.problem.d) return;
  // Read after write: the step's kernel has added everything.
  if constexpr (Early) griddepcontrol_wait();
  convert_rows<Width>(queries_of(rule, dQ_all).head(0, block.head),
                      dQ_accum_all.head(0, block.head), rule.problem.scale, i0, row_group, g,
                      chunk);
}

template <class T, int Width, bool LInPowersOf2 = false, bool NextIsEarly = false>
BackwardTensors<T> prepare_ragged(const Attention& a, const TensorRef& dQ_accum,
                                  const RaggedRule& rule) {
  const TensorRef& L_and_D = a.workspace("LD");
  const unsigned blocks = blocks_of_prepare<Width>(static_cast<int>(L_and_D.shape[3]));
  launch("prepare_ragged",
         {dim3(blocks * static_cast<unsigned>(a.problem.H)), dim3(PREPARE_THREADS)},
         prepare_ragged_kernel<T, Width, LInPowersOf2, NextIsEarly>, rule, view<const T>(a.O),
         view<const T>(a.dO), view<const float>(a.L), view<float>(L_and_D), view<float>(dQ_accum));
  return tensors_of<T>(a);
}

template <class T, int Width, bool Early = false>
void convert_ragged(const Attention& a, const TensorRef& dQ_accum, const RaggedRule& rule) {
  const unsigned blocks = blocks_of_convert(a, Width) * static_cast<unsigned>(a.problem.H);
  launch("convert_ragged",
         {.grid = dim3(blocks), .block = dim3(PREPARE_THREADS), .shared_bytes = 0, .early = Early},
         convert_ragged_kernel<T, Width, Early>, rule, view<const float>(dQ_accum), view<T>(a.dQ));
}

/// L, D and the sum of dQ, with padding for each sequence of a ragged batch.
inline std::vector<WorkspaceSpec> options_workspace(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> list = summing_workspace(p, pass);
  for (WorkspaceSpec& spec : list) {
    if (spec.name == std::string_view("LD")) spec.per_sequence = ROW_BLOCK;
    if (spec.name == std::string_view("dQ_accum")) spec.per_sequence = ROW_BLOCK * width_of_sum(p);
  }
  return list;
}

}  // namespace
}  // namespace flash::tensor_cores
