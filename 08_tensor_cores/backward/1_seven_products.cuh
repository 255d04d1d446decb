// 08 Tensor cores, backward, step 1: two kernels, so that each sum has one owner.
//
//   P^T = e^(scale K_j Q_i^T - L_i), masked                [Bc, d] x [d, Br]           (8.11)
//   dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//   dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//   dk_dv_kernel: for every tile j of K, V (one block each), over the tiles i of Q, dO:
//     dV_j += P^T dO_i                                     [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                               [Bc, Br] x [Br, d]          (8.15)
//   dq_kernel: for every tile i of Q, dO (one block each), over the tiles j of K, V:
//     dQ_i += scale dS K_j                                 [Br, Bc] x [Bc, d]          (8.16)
//
// New since chapter 07, whose phases are the same:
// - 16-bit products on tensor cores, with P and dS rounded and fp32 sums.
// - dk_dv_kernel computes transposed scores, whose accumulators already have the layout of the left
//   operand of (8.14) and (8.15); dq_kernel does not, so it has its own recompute_P_of_rows().
// - A warp owns the same rows of scores and of gradients, so that warps exchange no data.
// - Two tiles of Q and dO: one is in flight.
// - One loop runs over the tiles of all heads (QueryLoop of parts/before_and_after.cuh).
// - At Width 256 a block has half the columns of dK and dV (COLUMN_BLOCKS).
//
// Seven products; no two blocks add to the same element, so every run gives the same bits.
//
// Grid of dk_dv_kernel: Tc*B*Hkv*COLUMN_BLOCKS, where a block loops over all query heads that share
// its key/value head. Grid of dq_kernel: a block per Bc queries, for each of the B*H query heads.
// HBM: dk_dv_kernel reads K, V once and Q, dO, L, D once per tile of K that they see, all of it
//   COLUMN_BLOCKS times; dq_kernel reads Q, dO, L, D once and K, V once per tile of Bc queries that
//   sees them; dQ, dK, dV are written once.
// Workspace: L and D.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
//
// Map of this folder: steps 1 to 4 in their order; 4 is the fastest. shapes.hpp has their tile
// sizes, more/ the kernel for biases, any scale and options, and the gradient of the bias. In
// ../parts
//   backward_tiles.cuh   first: the words of the steps, and who owns what
//   before_and_after.cuh tiles of queries, L and D, dS; the kernel that runs before; from step 2
//                        on, dQ_accum and the kernel after
//   recompute_P.cuh      P from scores and L
//   accumulators.cuh, tile.cuh, addresses.cuh   as in ../forward
//   launch.cuh           last: host code; workspaces, what a Variant says
//   from step 2 on   add_to_dQ.cuh; from step 3 on   halves.cuh: what two halves exchange
#pragma once

#include "08_tensor_cores/backward/shapes.hpp"
#include "08_tensor_cores/parts/backward_tiles.cuh"

namespace flash::tensor_cores::backward_1 {
namespace {

/// The tile sizes of one compiled pair of kernels, and which thread holds what. Width: d, rounded
/// up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows of transposed scores, per warp
  static constexpr int QUERY_FRAGMENTS = Br / 8;      // of 8 columns of transposed scores
  static constexpr int THREADS = Bc / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;  // per SM (occupancy); they share its registers
  static constexpr int STAGES = 2, PT_OR_DST_TILES = 0;  // tiles of Q and dO
  // One up to d = 128. At 256 registers hold half of the columns of dK and dV, and COLUMN_BLOCKS
  // blocks share a tile of keys.
  static constexpr int COLS = Width > 128 ? 128 : Width, COLUMN_BLOCKS = Width / COLS;
  static constexpr int SHARED_ELEMENTS = shared_elements(Width, Br, Bc, STAGES, PT_OR_DST_TILES);
  static constexpr int DQ_THREADS = Bc / 16 * WARP;  // dq_kernel: 16 queries per warp
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2);

  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(ROW_BLOCK % Bc == 0, "and so do those of dq_kernel, of Bc queries");
  static_assert(2 * THREADS >= Br, "load_async() copies four elements of L and D per thread");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    dk_dv_kernel(Problem problem, BackwardTensors<T> hbm, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // Under a causal mask the first keys are visible to the most queries: their blocks start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc * Shape::COLUMN_BLOCKS,
                         problem.B * problem.Hkv, heads_at_once);
  const int b = order.head / problem.Hkv, kv_head = order.head % problem.Hkv;
  const int key0 = order.tile / Shape::COLUMN_BLOCKS * Shape::Bc;
  const int col0 = order.tile % Shape::COLUMN_BLOCKS * Shape::COLS;
  const SharedTiles<T, Shape> smem;
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row

  // The tiles of Q with a query that sees a key of this tile, for every query head of the group.
  const QueryLoop<Shape::Br> queries(problem, kv_head, key0);
  QueryTile at = queries.first(problem);  // its head h and its first query, query0

  // 1. K, V, and the first tile of Q, dO, L, D.
  load_async<Shape::THREADS, Shape::Bc>(smem.K, hbm.K.head(b, kv_head), key0);
  load_async<Shape::THREADS, Shape::Bc>(smem.V, hbm.V.head(b, kv_head), key0);
  load_queries<Shape>(smem, 0, hbm, b, at.h, at.query0);
  int stage = 0;  // of this tile of queries

  // [16 ROW_FRAGMENTS, COLS]; dK not scaled.
  Accumulators<Shape::ROW_FRAGMENTS, Shape::COLS / 8> dV(0.0f), dK(0.0f);
  for (int iteration = 0; iteration < queries.iterations;
       ++iteration, at = queries.after(problem, at), stage = 1 - stage) {
    cp_async_wait_all();
    // Read after write: the tiles of all threads have landed.
    // Write after read: no warp still reads the previous ones.
    __syncthreads();
    const QueryTile next = queries.after(problem, at);
    if (iteration + 1 < queries.iterations)
      load_queries<Shape>(smem, 1 - stage, hbm, b, next.h, next.query0);

    // 2. S^T = K Q^T and dP^T = V dO^T. A lane has the same elements of both.
    // [16 ROW_FRAGMENTS, Br]
    Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> St(0.0f), dPt(0.0f);
    add_product(St, smem.K.left(warp_row), smem.Q(stage).transposed());  // (8.11)
    mask</*Transposed=*/true>(St, problem, at.query0, key0 + warp_row);
    add_product(dPt, smem.V.left(warp_row), smem.dO(stage).transposed());  // (8.12)

    // 3. P^T, and dS^T = P^T o (dP^T - D), in the same registers.
    recompute_P(St, smem.stats(stage), problem.scale);
    auto& Pt = St;
    softmax_backward(dPt, Pt, smem.stats(stage));  // (8.13)
    auto& dSt = dPt;

    // 4. dV += P^T dO, dK += dS^T Q.
    add_product(dV, rounded<T>(Pt), smem.dO(stage).right(col0));  // (8.14)
    add_product(dK, rounded<T>(dSt), smem.Q(stage).right(col0));  // (8.15)
  }
  // 5. The gradients are staged in the warp's rows of V and K, which no other warp reads: no
  // barrier needed.
  dK.each([&](float& x, int) { x *= problem.scale; });
  write_rows(hbm.dV.head(b, kv_head), key0 + warp_row, dV, smem.V.below(warp_row), col0);
  write_rows(hbm.dK.head(b, kv_head), key0 + warp_row, dK, smem.K.below(warp_row), col0);
}

/// (8.11)  Scores, not transposed, become P = e^(scale S - L). Each lane applies the large-L rule
/// to its own rows.
template <class Scores>
__device__ void recompute_P_of_rows(Scores& S, const Rows<Scores::ROWS>& L, float scale) {
  const float scale_log2 = scale * LOG2_E;
  bool subtract_first = false;
#pragma unroll
  for (int r = 0; r < Scores::ROWS; ++r) subtract_first = subtract_first || fabsf(L[r]) > LARGE_L;
  if (subtract_first) {
    S.each([&](float& s, int r) { s = exp2_approx(LOG2_E * fmaf(scale, s, -L[r])); });
  } else {
    S.each([&](float& s, int r) { s = exp2_approx(fmaf(scale_log2, s, -LOG2_E * L[r])); });
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::DQ_THREADS, Shape::BLOCKS)
    dq_kernel(Problem problem, BackwardTensors<T> hbm, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // The tiles of dk_dv_kernel with their roles exchanged: the same shared memory.
  constexpr int QUERIES = Shape::Bc, KEYS = Shape::Br, THREADS = Shape::DQ_THREADS;
  // Under a causal mask the last queries see the most keys: their blocks start first.
  const BlockOrder order((problem.Nq + QUERIES - 1) / QUERIES, problem.B * problem.H,
                         heads_at_once);
  const int b = order.head / problem.H, h = order.head % problem.H;
  const int query0 = (order.tiles_of_head - 1 - order.tile) * QUERIES;
  const Matrix<const T> K = hbm.K.head(b, problem.kv_head(h));
  const Matrix<const T> V = hbm.V.head(b, problem.kv_head(h));

  const Tile<T, Shape::Width> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), QUERIES),
      dO_smem(Q_smem.end(), QUERIES);
  const auto K_smem = [&](int stage) {  // two tiles of K, then two of V
    return Tile<T, Shape::Width>(dO_smem.end() + stage * KEYS * Shape::Width, KEYS);
  };
  const auto V_smem = [&](int stage) { return K_smem(2 + stage); };
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile
  Rows<2> L(0.0f), D(0.0f);                      // of this lane's queries
  const auto L_or_D = [&](int row, int r) {
    const int query = query0 + warp_row + 8 * r + threadIdx.x % WARP / 4;
    return hbm.L_and_D.head(b, h)(row, query);
  };
  L.each([&](float& x, int r) { x = L_or_D(0, r); });
  D.each([&](float& x, int r) { x = L_or_D(1, r); });

  Accumulators<1, Shape::Width / 8> dQ(0.0f);  // [16, Width], not scaled
  const int key_end = problem.visible_keys(min(query0 + QUERIES, problem.Nq) - 1);
  Copier<T, Shape::Width, KEYS, THREADS> copy_K(K, 0), copy_V(V, 0);
  const auto load_tile = [&](int stage) {
    copy_K.load_async(K_smem(stage), KEYS);
    copy_V.load_async(V_smem(stage), KEYS);
  };

  // 1. Q, dO, and the first tile of K, V.
  load_async<THREADS, QUERIES>(Q_smem, hbm.Q.head(b, h), query0);
  load_async<THREADS, QUERIES>(dO_smem, hbm.dO.head(b, h), query0);
  if (key_end > 0) load_tile(0);
  int stage = 0;

  for (int key0 = 0; key0 < key_end; key0 += KEYS) {
    cp_async_wait_all();
    // Read after write: the tiles of all threads have landed.
    // Write after read: no warp still reads the previous ones.
    __syncthreads();
    if (key0 + KEYS < key_end) load_tile(1 - stage);

    // 2. S = Q K^T and dP = dO V^T, not transposed: rows are queries.
    Accumulators<1, KEYS / 8> S(0.0f), dP(0.0f);                        // [16, KEYS]
    add_product(S, Q_smem.left(warp_row), K_smem(stage).transposed());  // (8.11)
    mask(S, problem, query0 + warp_row, key0);
    add_product(dP, dO_smem.left(warp_row), V_smem(stage).transposed());  // (8.12)

    // 3. P, and dS = P o (dP - D), in the same registers.
    recompute_P_of_rows(S, L, problem.scale);
    auto& P = S;
    dP.each([&](float& dp, int r) { dp -= D[r]; });  // (8.13)
    dP.multiply(P);
    auto& dS = dP;

    // 4. dQ += dS K.
    add_product(dQ, rounded<T>(dS), K_smem(stage).right());  // (8.16)
    stage = 1 - stage;
  }
  // Write after write: without a tile of K nothing has waited for the copies to Q's buffer, where
  // dQ is staged.
  cp_async_wait_all();
  // Write after write: other threads have waited for their copies, too.
  __syncthreads();
  dQ.each([&](float& x, int) { x *= problem.scale; });
  write_rows(hbm.dQ.head(b, h), query0 + warp_row, dQ, Q_smem.below(warp_row));
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const BackwardTensors<T> hbm = prepare<T, Shape::Width>(a, nullptr);
    const int kv_heads = p.B * p.Hkv, heads = p.B * p.H;
    const std::int64_t bytes_of_row = 2 * 2 * Shape::Width;  // of Q and dO, or K and V
    const std::size_t shared_bytes = Shape::SHARED_ELEMENTS * sizeof(T);
    launch(
        "dk_dv",
        {dim3(blocks_for(p.Nk, Shape::Bc) * Shape::COLUMN_BLOCKS * static_cast<unsigned>(kv_heads)),
         dim3(Shape::THREADS), shared_bytes},
        dk_dv_kernel<T, Shape>, p, hbm,
        heads_in_L2(kv_heads, bytes_of_row * p.Nq * p.group_size()));
    launch("dq",
           {dim3(blocks_for(p.Nq, Shape::Bc) * static_cast<unsigned>(heads)),
            dim3(Shape::DQ_THREADS), shared_bytes},
           dq_kernel<T, Shape>, p, hbm, heads_in_L2(heads, bytes_of_row * p.Nk));
  });
}

const Variant variant = plain_backward_step<seven_products_shapes<BackwardShape>, false>(
    "seven_products",
    "dK and dV over tiles of K, dQ over tiles of Q: deterministic, seven products");

}  // namespace
}  // namespace flash::tensor_cores::backward_1
