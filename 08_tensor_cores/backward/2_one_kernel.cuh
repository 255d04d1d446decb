// 08 Tensor cores, backward, step 2: one kernel over tiles of K and V; dQ is summed by atomics.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 1: each block adds its part of dQ_i to HBM, so that S and dP are computed once,
// not twice: five products instead of seven. The rows of dS K are queries, which no warp owns: dS
// goes through shared memory, and all warps share the product. dQ_accum sums in fp32 and in
// accumulator order, in which the 32 lanes of a warp add to 512 adjacent bytes. A final kernel
// scales it and converts it to 16-bit rows.
//
// Grid: Tc*B*Hkv*COLUMN_BLOCKS, where a block loops over all query heads that share its key/value
//   head.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see, all of it COLUMN_BLOCKS times; dQ,
//   dK, dV once. dQ_accum: cleared once, read and written once per tile of K, read once by
//   convert_kernel.
// Workspace: L and D; dQ_accum.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts/backward_tiles.cuh"

namespace flash::tensor_cores::backward_2 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows of transposed scores, per warp
  static constexpr int QUERY_FRAGMENTS = Br / 8;      // of 8 columns of transposed scores
  static constexpr int THREADS = Bc / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;  // per SM (occupancy); they share its registers
  static constexpr int STAGES = 2;       // tiles of Q and dO: one in flight
  // Columns of dK and dV per block, as registers hold no more: so many blocks share a tile of keys.
  static constexpr int COLS = Width > 128 ? 128 : Width, COLUMN_BLOCKS = Width / COLS;
  // K, V; two tiles each of Q and dO; dS; L and D: 2 stages of 2 rows of Br floats, or 8 Br
  // elements.
  static constexpr int SHARED_ELEMENTS = Width * (2 * Bc + 4 * Br) + Bc * Br + 2 * 4 * Br;
  static constexpr WarpGrid DQ_WARPS{THREADS / WARP, Br, COLS};
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2);

  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(2 * THREADS >= Br, "QueryStats::load_async() copies four elements per thread");
  static_assert(DQ_WARPS.rows * DQ_WARPS.cols * WARP == THREADS, "each warp has a share of dQ");
};

/// (8.16)  The warp's share of dQ = dS K [Br, COLS], added to dQ_accum, whose order is in
/// parts/sum_of_dQ.cuh. col0: the block's first column.
template <class Shape, class T>
__device__ void add_to_dQ(const Matrix<float>& dQ_accum, int query0, int col0,
                          const Tile<T, Shape::Br>& dSt_smem, const Tile<T, Shape::Width>& K_smem) {
  constexpr int row_fragments = Shape::Br / 16 / Shape::DQ_WARPS.rows,
                col_fragments = Shape::COLS / 8 / Shape::DQ_WARPS.cols;
  const int warp = threadIdx.x / WARP, warp_row = warp % Shape::DQ_WARPS.rows * 16 * row_fragments;
  const int warp_col = warp / Shape::DQ_WARPS.rows * 8 * col_fragments;
  // A warp could have no share. Here each has one, as asserted above, but without this test
  // nvcc 13.0 spills five shapes on sm_90a: 116 bytes per thread at Width 32, Br 64.
  if (warp_col >= Shape::COLS) return;
  Accumulators<row_fragments, col_fragments> dQ(0.0f);
  add_product(dQ, dSt_smem.template left_transposed<Shape::Bc>(warp_row),
              K_smem.right(col0 + warp_col));
  const int offset =
      ((query0 + warp_row) / 16 * (Shape::Width / 8) + (col0 + warp_col) / 8) * WARP +
      threadIdx.x % WARP;
#pragma unroll
  for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
    for (int n = 0; n < col_fragments; ++n) {
      const float(&dq)[4] = dQ.elements[i][n];
      atomic_add4(dQ_accum.address(0, 4 * (offset + (i * Shape::Width / 8 + n) * WARP)),
                  make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    backward_kernel(Problem problem, BackwardTensors<T> all, Tensor<float> dQ_accum,
                    int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // The first keys, visible to the most queries under a causal mask, start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc * Shape::COLUMN_BLOCKS,
                         problem.B * problem.Hkv, heads_at_once);
  const int key0 = order.tile / Shape::COLUMN_BLOCKS * Shape::Bc,
            col0 = order.tile % Shape::COLUMN_BLOCKS * Shape::COLS;
  const int b = order.head / problem.Hkv, kv_head = order.head % problem.Hkv;

  const Tile<T, Shape::Width> K_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Bc),
      V_smem(K_smem.end(), Shape::Bc);
  const auto Q_smem = [&](int stage) {  // the tiles of Q, then those of dO
    return Tile<T, Shape::Width>(V_smem.end() + stage * Shape::Br * Shape::Width, Shape::Br);
  };
  const auto dO_smem = [&](int stage) { return Q_smem(Shape::STAGES + stage); };
  const Tile<T, Shape::Br> dSt_smem(dO_smem(Shape::STAGES - 1).end(), Shape::Bc);
  const auto stats_smem = [&](int stage) {
    return QueryStats{{reinterpret_cast<float*>(dSt_smem.end()) + stage * 2 * Shape::Br, 2,
                       Shape::Br, Shape::Br}};
  };
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row

  // [16 ROW_FRAGMENTS, COLS]; dK without the scale.
  Accumulators<Shape::ROW_FRAGMENTS, Shape::COLS / 8> dK(0.0f), dV(0.0f);

  const QueryTiles<Shape::Br> queries(problem, kv_head, key0);
  const auto load_tile = [&](int iteration, QueryTile at) {
    const int stage = iteration % Shape::STAGES;
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.Q.head(b, at.h), at.query0)
        .load_async(Q_smem(stage));
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.dO.head(b, at.h), at.query0)
        .load_async(dO_smem(stage));
    stats_smem(stage).template load_async<Shape::Br>(all.L_and_D.head(b, at.h), at.query0);
  };
  QueryTile at = queries.first(problem);  // its head h and its first query, query0

  // 1. K, V, and the first tiles of Q, dO.
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.K.head(b, kv_head), key0)
      .load_async(K_smem);
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.V.head(b, kv_head), key0)
      .load_async(V_smem);
  load_tile(0, at);

  for (int iteration = 0; iteration < queries.iterations; ++iteration) {
    cp_async_wait_all();
    // Read after write: the tiles of all threads have landed.
    // Write after read: no warp still reads the previous ones, nor dS^T.
    __syncthreads();
    if (iteration + 1 < queries.iterations) load_tile(iteration + 1, queries.after(problem, at));
    const auto Q = Q_smem(iteration % 2), dO = dO_smem(iteration % 2);
    const QueryStats stats = stats_smem(iteration % 2);

    // 2. P^T, and dV.
    // Transposed: [16 ROW_FRAGMENTS, Br].
    Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> St(0.0f), dPt(0.0f);
    add_product(St, K_smem.left(warp_row), Q.transposed());  // (8.11)
    mask</*Transposed=*/true>(problem, St, at.query0, key0 + warp_row);
    exponentiate(St, stats, problem.scale, /*subtract_first=*/false);
    auto& Pt = St;                                    // in the same registers
    add_product(dV, rounded<T>(Pt), dO.right(col0));  // (8.14)

    // 3. dS^T, and dK.
    add_product(dPt, V_smem.left(warp_row), dO.transposed());  // (8.12)
    softmax_backward(dPt, Pt, stats);
    auto& dSt = dPt;
    store(dSt_smem.below(warp_row), dSt);
    add_product(dK, rounded<T>(dSt), Q.right(col0));  // (8.15)

    // 4. dQ, by all warps.
    // Read after write: dS^T of all warps. The barrier at the top of the loop separates it from the
    // next tile's dS^T.
    __syncthreads();
    add_to_dQ<Shape>(dQ_accum.head(b, at.h), at.query0, col0, dSt_smem, K_smem);
    at = queries.after(problem, at);
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  __syncthreads();
  dK.each([&](float& x, int) { x *= problem.scale; });
  write_rows(all.dV.head(b, kv_head), key0 + warp_row, dV, V_smem.below(warp_row), col0);
  write_rows(all.dK.head(b, kv_head), key0 + warp_row, dK, K_smem.below(warp_row), col0);
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const BackwardTensors<T> all = prepare<T, Shape::Width>(a, &dQ_accum);
    const int kv_heads = p.B * p.Hkv,
              tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)) * Shape::COLUMN_BLOCKS;
    launch("backward_one_kernel",
           {dim3(static_cast<unsigned>(tiles * kv_heads)), dim3(Shape::THREADS),
            Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, p, all, view<float>(dQ_accum),
           heads_at_once_backward<Shape>(a, tiles));
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<BackwardShape<Sizes...>>(why, start<BackwardShape<Sizes...>>, speed);
}

// Width, Br, Bc, row fragments per warp, blocks per SM. Fastest first per width, as measured with
// --tune on an H200.
constexpr CompiledShape shapes[] = {
    compiled<32, 64, 128, 2, 2>("32 keys a warp"),
    compiled<32, 32, 64, 1, 2>("little shared memory"),
    compiled<64, 32, 128, 2, 2>("32 keys a warp"),
    compiled<64, 32, 64, 1, 2>("little shared memory"),
    compiled<96, 32, 64, 1, 2>("16 keys a warp"),
    compiled<128, 32, 64, 1, 2>("16 keys a warp"),
    compiled<128, 16, 64, 1, 2>("little shared memory"),
    compiled<256, 16, 64, 1, 1>("16 keys a warp"),
    compiled<256, 16, 32, 1, 1>("little shared memory"),
};

const Variant variant = plain_backward_step<shapes, true>(
    "one_kernel", "five products; dQ summed by atomics in the order of fragments");

}  // namespace
}  // namespace flash::tensor_cores::backward_2
