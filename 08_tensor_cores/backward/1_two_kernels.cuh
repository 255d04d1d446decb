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
// New since chapter 07: 16-bit products on tensor cores, with P and dS rounded and fp32 sums.
// dk_dv_kernel computes transposed scores, whose accumulators already have the layout of the left
// operand of (8.14) and (8.15). A warp owns the same rows of scores and of gradients, so that warps
// exchange no data.
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
// Map of this folder: steps 1, 2, 3 in their order; 3 is the fastest. more/ has the kernel for
// biases, any scale and options, and the gradient of the bias. In ../parts
//   backward_tiles.cuh   first: all words of the steps, and who owns what
//   prepare.cuh          the kernel that runs before: D, and L next to it; tiles of queries
//   weights.cuh          P from scores and L
//   sum_of_dQ.cuh        from step 2 on: the order of dQ_accum; the kernel that runs after
//   accumulators.cuh, tile.cuh   as in ../forward
//   launch_backward.cuh  last: workspaces, what a Variant says
#pragma once

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
  static constexpr int STAGES = 2;       // tiles of Q and dO: one in flight
  // Columns of dK and dV per block, as registers hold no more: so many blocks share a tile of keys.
  static constexpr int COLS = Width > 128 ? 128 : Width, COLUMN_BLOCKS = Width / COLS;
  // K, V; two tiles each of Q and dO; L and D: 2 stages of 2 rows of Br floats, or 8 Br elements.
  static constexpr int SHARED_ELEMENTS = Width * (2 * Bc + 4 * Br) + 2 * 4 * Br;
  static constexpr int DQ_THREADS = Bc / 16 * WARP;  // dq_kernel: 16 queries per warp
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2);

  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(ROW_BLOCK % Bc == 0, "and so do those of dq_kernel, of Bc queries");
  static_assert(2 * THREADS >= Br, "QueryStats::load_async() copies four elements per thread");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    dk_dv_kernel(Problem problem, BackwardTensors<T> all, int heads_at_once) {
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
  const auto stats_smem = [&](int stage) {
    return QueryStats{
        {reinterpret_cast<float*>(dO_smem(Shape::STAGES - 1).end()) + stage * 2 * Shape::Br, 2,
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
    // Write after read: no warp still reads the previous ones.
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
    add_product(dK, rounded<T>(dSt), Q.right(col0));  // (8.15)
    at = queries.after(problem, at);
  }
  dK.each([&](float& x, int) { x *= problem.scale; });
  // The gradients are staged in the warp's rows of V and K, which no other warp reads: no barrier
  // needed.
  write_rows(all.dV.head(b, kv_head), key0 + warp_row, dV, V_smem.below(warp_row), col0);
  write_rows(all.dK.head(b, kv_head), key0 + warp_row, dK, K_smem.below(warp_row), col0);
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::DQ_THREADS, Shape::BLOCKS)
    dq_kernel(Problem problem, BackwardTensors<T> all, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  // The tiles of dk_dv_kernel with their roles exchanged: the same shared memory.
  constexpr int QUERIES = Shape::Bc, KEYS = Shape::Br;
  // The last queries, which see the most keys under a causal mask, start first.
  const BlockOrder order((problem.Nq + QUERIES - 1) / QUERIES, problem.B * problem.H,
                         heads_at_once);
  const int query0 = (order.tiles_of_head - 1 - order.tile) * QUERIES, b = order.head / problem.H,
            h = order.head % problem.H;

  const Tile<T, Shape::Width> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), QUERIES),
      dO_smem(Q_smem.end(), QUERIES);
  const auto K_smem = [&](int stage) {  // two tiles of K, then two of V
    return Tile<T, Shape::Width>(dO_smem.end() + stage * KEYS * Shape::Width, KEYS);
  };
  const auto V_smem = [&](int stage) { return K_smem(2 + stage); };
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first row of the tile

  Accumulators<1, Shape::Width / 8> dQ(0.0f);  // [16, Width], without the scale
  const Matrix<const float> L_and_D = all.L_and_D.head(b, h);
  Rows<2> L(0.0f), D(0.0f);
  L.each(
      [&](float& x, int r) { x = L_and_D(0, query0 + warp_row + 8 * r + threadIdx.x % WARP / 4); });
  D.each(
      [&](float& x, int r) { x = L_and_D(1, query0 + warp_row + 8 * r + threadIdx.x % WARP / 4); });

  const int key_end = problem.visible_keys(min(query0 + QUERIES, problem.Nq) - 1);
  const int visible_tiles = (key_end + KEYS - 1) / KEYS;
  Copier<T, Shape::Width, KEYS, Shape::DQ_THREADS> copy_K(all.K.head(b, problem.kv_head(h)), 0),
      copy_V(all.V.head(b, problem.kv_head(h)), 0);
  const auto load_tile = [&](int j) {
    copy_K.load_async(K_smem(j % 2), KEYS);
    copy_V.load_async(V_smem(j % 2), KEYS);
  };

  // 1. Q, dO, and the first tiles of K, V.
  Copier<T, Shape::Width, QUERIES, Shape::DQ_THREADS>(all.Q.head(b, h), query0).load_async(Q_smem);
  Copier<T, Shape::Width, QUERIES, Shape::DQ_THREADS>(all.dO.head(b, h), query0)
      .load_async(dO_smem);
  if (visible_tiles > 0) load_tile(0);

  for (int j = 0; j < visible_tiles; ++j) {
    cp_async_wait_all();
    // Read after write: the tiles of all threads have landed.
    // Write after read: no warp still reads the previous ones.
    __syncthreads();
    if (j + 1 < visible_tiles) load_tile(j + 1);

    // 2. P and dS, not transposed: rows are queries.
    Accumulators<1, KEYS / 8> S(0.0f), dP(0.0f);                        // [16, KEYS]
    add_product(S, Q_smem.left(warp_row), K_smem(j % 2).transposed());  // (8.11)
    mask(problem, S, query0 + warp_row, j * KEYS);
    exponentiate_rows(S, L, problem.scale);
    auto& P = S;                                                          // in the same registers
    add_product(dP, dO_smem.left(warp_row), V_smem(j % 2).transposed());  // (8.12)
    dP.each([&](float& dp, int r) { dp -= D[r]; });                       // (8.13)
    dP.multiply(P);
    auto& dS = dP;

    // 3. dQ += dS K.
    add_product(dQ, rounded<T>(dS), K_smem(j % 2).right());  // (8.16)
  }
  // Write after write: if there was no tile of K, copies to Q's buffer, where dQ is staged, may
  // still be in flight.
  cp_async_wait_all();
  // Write after write: so may those of other threads.
  __syncthreads();
  dQ.each([&](float& x, int) { x *= problem.scale; });
  write_rows(all.dQ.head(b, h), query0 + warp_row, dQ, Q_smem.below(warp_row));
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const BackwardTensors<T> all = prepare<T, Shape::Width>(a, nullptr);
    const int kv_heads = p.B * p.Hkv, heads = p.B * p.H;
    const std::int64_t bytes_of_row = 2 * 2 * Shape::Width;  // of Q and dO, or K and V
    const std::size_t shared_bytes = Shape::SHARED_ELEMENTS * sizeof(T);
    launch(
        "dk_dv",
        {dim3(blocks_for(p.Nk, Shape::Bc) * Shape::COLUMN_BLOCKS * static_cast<unsigned>(kv_heads)),
         dim3(Shape::THREADS), shared_bytes},
        dk_dv_kernel<T, Shape>, p, all,
        heads_in_L2(kv_heads, bytes_of_row * p.Nq * p.group_size()));
    launch("dq",
           {dim3(blocks_for(p.Nq, Shape::Bc) * static_cast<unsigned>(heads)),
            dim3(Shape::DQ_THREADS), shared_bytes},
           dq_kernel<T, Shape>, p, all, heads_in_L2(heads, bytes_of_row * p.Nk));
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
    compiled<256, 32, 64, 1, 1>("16 keys a warp"),
    compiled<256, 16, 32, 1, 1>("little shared memory"),
};

const Variant variant = plain_backward_step<shapes, false>(
    "two_kernels", "dK and dV over tiles of K, dQ over tiles of Q: deterministic, seven products");

}  // namespace
}  // namespace flash::tensor_cores::backward_1
