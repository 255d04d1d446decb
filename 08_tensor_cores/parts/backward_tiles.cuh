// 08 Tensor cores, backward without Hopper, all steps: the words that they use. To be read first.
//
//   Accumulators        a warp's rows of a matrix, in registers; add_product()   accumulators.cuh
//   Tile                a matrix in shared memory, and its operands: left(row),  tile.cuh
//                       right(col), transposed(), left_transposed(col)
//   BackwardTensors     what the host passes, with L and D of all queries   before_and_after.cuh
//   SharedTiles         K, V, and what comes and goes with each tile of queries  below
//   recompute_P()       scores become P, (8.11)                                  recompute_P.cuh
//   softmax_backward()  dP becomes dS, (8.13)                               before_and_after.cuh
//
// Who owns what. A block has a tile of keys, whose rows it divides among its warps, and loops over
// tiles of queries, whose rows are columns here:
//
//                                      all warps read Q, dO  [Br, Width]
//                                     +--------------------------------+
//   warp 0   its rows of K and V      | its rows of S^T, P^T, dP^T,    |    its rows of dK and dV
//   warp 1   its rows of K and V      | dS^T  [Bc, Br], in registers   |    its rows of dK and dV
//   ...      [Bc, Width], shared      |                                |    [Bc, Width], registers
//                                     +--------------------------------+
//
//   (8.11), (8.12)   K and V are the left operands, Q and dO the right ones: transposed()
//   (8.14), (8.15)   accumulators, P^T and dS^T, are the left operands, dO and Q the right ones
#pragma once

#include "08_tensor_cores/parts/addresses.cuh"
#include "08_tensor_cores/parts/before_and_after.cuh"
#include "08_tensor_cores/parts/recompute_P.cuh"

namespace flash::tensor_cores {
namespace {

/// Shared memory of a block: K and V; Shape::STAGES tiles each of Q and dO; PT_OR_DST_TILES tiles
/// of P^T or dS^T, whose rows are keys (none in step 1); L and D of each stage.
template <class T, class Shape>
struct SharedTiles {
  Tile<T, Shape::Width> K, V;  // [Bc, Width]

  __device__ SharedTiles()
      : K(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Bc), V(K.end(), Shape::Bc) {}
  __device__ Tile<T, Shape::Width> Q(int stage) const {  // [Br, Width]
    return {V.end() + stage * Shape::Br * Shape::Width, Shape::Br};
  }
  __device__ Tile<T, Shape::Width> dO(int stage) const { return Q(Shape::STAGES + stage); }
  __device__ Tile<T, Shape::Br> Pt_or_dSt(int index = 0) const {  // [Bc, Br]
    return {dO(Shape::STAGES - 1).end() + index * Shape::Bc * Shape::Br, Shape::Bc};
  }
  __device__ QueryStats<> stats(int stage) const {
    const auto first = reinterpret_cast<float*>(Pt_or_dSt(Shape::PT_OR_DST_TILES).elements.data);
    return {{first + stage * 2 * Shape::Br, 2, Shape::Br, Shape::Br}};
  }
};

/// Its size in elements of 16 bits.
constexpr int shared_elements(int width, int Br, int Bc, int stages, int pt_or_dst_tiles) {
  return 2 * width * (Bc + stages * Br) + pt_or_dst_tiles * Bc * Br + stages * 2 * 2 * Br;
}

/// Starts copying rows row0, row0 + 1, ... of M to a tile of `Height` rows.
template <int Threads, int Height, class T, int Width>
__device__ void load_async(const Tile<T, Width>& tile, const Matrix<const T>& M, int row0) {
  Copier<T, Width, Height, Threads>(M, row0).load_async(tile);
}

/// Starts copying L and D of Br queries from query0 on. Br / 2 threads copy four elements each.
template <int Br>
__device__ void load_async(const QueryStats<>& stats, const Matrix<const float>& L_and_D,
                           int query0) {
  const int row = threadIdx.x / (Br / 4), col = threadIdx.x % (Br / 4) * 4;
  if (row < 2) cp_async<16>(stats.rows.address(row, col), L_and_D.address(row, query0 + col));
}

/// Starts copying the tiles of Q, dO, L and D that begin at query0 of head h.
template <class Shape, class T>
__device__ void load_queries(const SharedTiles<T, Shape>& smem, int stage,
                             const BackwardTensors<T>& hbm, int b, int h, int query0) {
  load_async<Shape::THREADS, Shape::Br>(smem.Q(stage), hbm.Q.head(b, h), query0);
  load_async<Shape::THREADS, Shape::Br>(smem.dO(stage), hbm.dO.head(b, h), query0);
  load_async<Shape::Br>(smem.stats(stage), hbm.L_and_D.head(b, h), query0);
}

}  // namespace
}  // namespace flash::tensor_cores
