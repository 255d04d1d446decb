// 08 Tensor cores, forward, step 2: ldmatrix, and a swizzle instead of padding.
//
//   S = scale Q_i K_j^T, masked                            [Br, d] x [d, Bc]           (6.1)
//   m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                  (6.2)
//   P = e^(S - m_new),   l = alpha l + rowsum P                                        (6.3)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = m + ln l                                              (6.5)
//
// New since step 1, with the same arithmetic on the same tiles: operands are read in chunks of 8
// elements, 16 bytes, which may lie anywhere in their row.
// 1. Operands (parts/ldmatrix.cuh). One ldmatrix loads a 16 x 16 block, where step 1 needs four
//    reads, or eight for V. Each lane passes the address of a chunk and receives elements of other
//    chunks, those that mma.sync expects in this lane. Step 1's padded rows would do for this.
// 2. Tiles (parts/tile.cuh). Since chunks are addressed one by one, rows need no padding: chunks
//    are permuted within their row instead, so that the 8 of one phase of ldmatrix, and those that
//    are copied together, are in different banks (docs/reference/swizzles.md).
// Its price: a lane now reads elements of P that other lanes have stored, which takes __syncwarp().
//
// Grid, block, HBM, shapes: as step 1.
#pragma once

#include "08_tensor_cores/forward/shapes.hpp"
#include "08_tensor_cores/parts/epilogue.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/ldmatrix.cuh"

namespace flash::tensor_cores::forward_2 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8;        // of 8 columns of S
  static constexpr int COL_FRAGMENTS = Width / 8;     // of 8 columns of O
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = 2;  // per SM (occupancy); they share its registers
  // Q, K, V and P.
  static constexpr int SHARED_ELEMENTS = Width * (Br + 2 * Bc) + Bc * Br;
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2 && Width >= 64);

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 32 == 0,
                "whole fragments");
};

/// Copies rows row0, row0 + 1, ... of M to a tile, a chunk of 16 bytes at a time, with zeros beyond
/// the last row and column.
template <class Shape, class T>
__device__ void load(const Tile<T, Shape::Width>& tile, const Matrix<const T>& M, int row0) {
  constexpr unsigned chunks = Shape::Width / 8;
  // opaque(): otherwise the compiler spills addresses.
  const unsigned first = opaque(threadIdx.x), end = tile.elements.rows * chunks;
  for (unsigned index = first; index < end; index += Shape::THREADS) {
    const int row = index / chunks, col = index % chunks * 8;
    uint4 chunk = make_uint4(0, 0, 0, 0);
    if (row0 + row < M.rows && col < M.cols) chunk = M.template as<uint4>(row0 + row, col);
    tile.template as<uint4>(row, col) = chunk;
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(Problem problem, Tensor<const T> Q_all, Tensor<const T> K_all,
                   Tensor<const T> V_all, Tensor<T> O_all, Tensor<float> L_all) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int b = blockIdx.x / Tr / problem.H, h = blockIdx.x / Tr % problem.H;
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h)),
                        V = V_all.head(b, problem.kv_head(h));

  const Tile<T, Shape::Width> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Br);
  const Tile<T, Shape::Width> K_smem(Q_smem.end(), Shape::Bc), V_smem(K_smem.end(), Shape::Bc);
  const Tile<T, Shape::Bc> P_smem(V_smem.end(), Shape::Br);
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row
  const auto Q_rows = Q_smem.below(warp_row);
  const auto P_rows = P_smem.below(warp_row);

  using Output = Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS>;
  Output O(0.0f);                            // [16 ROW_FRAGMENTS, Width], not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  // No row of the tile sees keys from key_end on.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  const int visible_tiles = (key_end + Shape::Bc - 1) / Shape::Bc;
  if (visible_tiles == 0)
    return write_empty<Shape>(O_all.head(b, h), L_all.head_vector(b, h), query0);

  // 1. Q.
  load<Shape>(Q_smem, Q_all.head(b, h), query0);

  for (int j = 0; j < visible_tiles; ++j) {
    // 2. K and V.
    const int key0 = j * Shape::Bc;
    // Write after read: no warp still reads the previous K and V.
    if (j > 0) __syncthreads();
    load<Shape>(K_smem, K, key0);
    load<Shape>(V_smem, V, key0);
    // Read after write: K, V and Q of all threads have arrived.
    __syncthreads();

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S(0.0f);  // [16 ROW_FRAGMENTS, Bc]
    add_product(S, Q_rows.left(), K_smem.transposed());                // (6.1)
    S.each([&](float& s, int) { s *= problem.scale; });
    mask(S, problem, query0 + warp_row, key0);
    const auto alpha = update_max(m, row_max(S), expf);                   // (6.2)
    S.each([&](float& s, int r) { s = expf(s - zero_if_empty(m[r])); });  // (6.3)
    auto& P = S;                                                          // in the same registers
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    // 4. O += P V. P becomes an operand through shared memory. The barrier of phase 2 separates it
    // from the previous tile's P.
    store(P_rows, P);
    // Read after write: ldmatrix reads whole rows, written by several lanes.
    __syncwarp();
    add_product(O, P_rows.left(), V_smem.right());  // (6.4)
  }
  write_output(O, m, l, /*scale=*/1.0f, O_all.head(b, h), L_all.head_vector(b, h),
               query0 + warp_row, Q_rows);  // (6.5)
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
    launch("tensor_swizzle",
           {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, p, view<const T>(a.Q), view<const T>(a.K), view<const T>(a.V),
           view<T>(a.O), view<float>(a.L));
  });
}

const Variant variant = plain_step<mma_shapes<ForwardShape>>(
    "swizzle", "ldmatrix, and an XOR swizzle in place of padding");

}  // namespace
}  // namespace flash::tensor_cores::forward_2
