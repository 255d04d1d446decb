// The matrix products around a softmax that stages 01 to 03 write to HBM: they change the softmax
// and keep these.
//
//   S = scale Q K^T, masked                                                     (1.1)
//   O = P V                                                                     (1.3)
//
// A block of TILE x TILE threads computes a TILE x TILE tile of the result, one element per thread:
// tile_product(), which the backward pass of 01 shares. It holds two tiles in shared memory, 8.25
// KiB, and reads each element TILE times: traffic from HBM falls by a factor of TILE (1.6).
//
// Grid: a block per tile of the result, and the heads of all batches along z: tiled().
// HBM: a block reads TILE rows of A and TILE columns of B. Blocks that share them read them again,
//   from L2 if they are still there.
//
// Names that every kernel file uses:
//   A B, A o B               matrix product, elementwise product
//   B, H, Hkv; Nq, Nk, d     batch, query heads, key/value heads (H / Hkv query heads share a head
//                            of K and V); queries, keys, columns of a head.  i: a query, j: a key,
//                            c: a column
//   Tensor, Matrix, Vector   pointers with sizes and strides (common/machine/gpu/view.cuh):
//                            Q_all.head(n) is the matrix of one of the B*H heads, and
//                            Q_all.head(n)(i, c) one element
//   Problem                  the sizes, and which keys a query sees (common/attention/problem.hpp)
#pragma once

#include "common/parts/kernel.cuh"

namespace flash {
namespace {

// A warp is a row of the tile: 32 threads side by side read 32 neighbouring elements, one 128-byte
// line of HBM.
constexpr int TILE = 32;

// One column of padding: a warp that walks down a column of a tile then hits 32 different banks,
// not one bank 32 times.
using Tile = float[TILE][TILE + 1];

/// Copies the TILE x TILE tile of M that starts at (row0, col0), with zeros beyond the edges, so
/// that products need no test.
__device__ inline void load_tile(Tile& tile, const Matrix<const float>& M, int row0, int col0) {
  const int row = row0 + threadIdx.y;
  const int col = col0 + threadIdx.x;
  tile[threadIdx.y][threadIdx.x] = row < M.rows && col < M.cols ? M(row, col) : 0.0f;
}

/// This thread's element, (row0 + threadIdx.y, col0 + threadIdx.x), of op(A) op(B), where op
/// transposes or not. `depth`: the inner dimension. All threads of the block must call it.
///   <false, true>   Q K^T, and in the backward pass dO V^T
///   <false, false>  P V, and in the backward pass dS K
///   <true, false>   in the backward pass alone: P^T dO, dS^T Q
template <bool TransposeA, bool TransposeB>
__device__ float tile_product(const Matrix<const float>& A, const Matrix<const float>& B, int row0,
                              int col0, int depth) {
  __shared__ Tile A_tile;  // [TILE rows, TILE of depth]; with TransposeA as A is stored, transposed
  __shared__ Tile B_tile;  // [TILE of depth, TILE columns], or the transpose
  const int row = threadIdx.y;
  const int col = threadIdx.x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < depth; k0 += TILE) {
    load_tile(A_tile, A, TransposeA ? k0 : row0, TransposeA ? row0 : k0);
    load_tile(B_tile, B, TransposeB ? col0 : k0, TransposeB ? k0 : col0);
    // Read after write: a thread reads what others have loaded.
    __syncthreads();
    for (int k = 0; k < TILE; ++k) {
      const float a = TransposeA ? A_tile[k][row] : A_tile[row][k];
      const float b = TransposeB ? B_tile[col][k] : B_tile[k][col];
      sum += a * b;
    }
    // Write after read: the next load overwrites tiles that slower warps still read.
    __syncthreads();
  }
  return sum;
}

/// (1.1)  S = scale Q K^T, masked    [Nq, d] x [d, Nk].
/// Grid: (tiles of keys, tiles of queries, B*H).
__global__ void scores_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                              Tensor<float> S_all) {
  const Matrix<const float> Q = Q_all.head(blockIdx.z), K = K_all.head(problem.kv_head(blockIdx.z));
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float dot = tile_product<false, true>(Q, K, row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i >= problem.Nq || j >= problem.Nk) return;  // no barrier follows
  S_all.head(blockIdx.z)(i, j) = problem.visible(i, j) ? problem.scale * dot : -INFINITY;
}

/// (1.3)  O = P V    [Nq, Nk] x [Nk, d].  Grid: (tiles of d, tiles of queries, B*H).
__global__ void output_kernel(Problem problem, Tensor<const float> P_all, Tensor<const float> V_all,
                              Tensor<float> O_all) {
  const Matrix<const float> P = P_all.head(blockIdx.z), V = V_all.head(problem.kv_head(blockIdx.z));
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float sum = tile_product<false, false>(P, V, row0, col0, problem.Nk);
  const int i = row0 + threadIdx.y;
  const int c = col0 + threadIdx.x;
  if (i < problem.Nq && c < problem.d) O_all.head(blockIdx.z)(i, c) = sum;
}

// ---- Launches: skip them on a first read -------------------------------------------------------
//
// launch(name, {grid, block}, kernel, arguments...) is kernel<<<grid, block>>>(arguments...), with
// errors checked; {grid, block} is a LaunchShape. Attention: a Problem and its tensors. Pass:
// forward or backward. WorkspaceSpec: one more matrix in HBM, view<float>(a.workspace("S")).
// Variant: what a kernel file offers the programs. refuse: why it cannot take a problem, or "".

/// One block per TILE x TILE tile of a [rows, cols] result, for `heads` results.
LaunchShape tiled(int rows, int cols, int heads) {
  return {dim3(blocks_for(cols, TILE), blocks_for(rows, TILE), static_cast<unsigned>(heads)),
          dim3(TILE, TILE)};
}

/// `rows` rows of one of the B*H heads per block.
LaunchShape by_rows(const Problem& p, int rows, dim3 block) {
  return {dim3(blocks_for(p.Nq, rows), 1, static_cast<unsigned>(p.B * p.H)), block};
}

void launch_scores(const Attention& a) {
  const Problem& p = a.problem;
  launch("scores", tiled(p.Nq, p.Nk, p.B * p.H), scores_kernel, p, view<const float>(a.Q),
         view<const float>(a.K), view<float>(a.workspace("S")));
}

void launch_output(const Attention& a) {
  const Problem& p = a.problem;
  launch("output", tiled(p.Nq, p.d, p.B * p.H), output_kernel, p,
         view<const float>(a.workspace("P")), view<const float>(a.V), view<float>(a.O));
}

/// S and P [B, H, Nq, Nk]; in a backward pass their gradients, too.
std::vector<WorkspaceSpec> pair_matrices(const Problem& p, Pass pass) {
  const std::array<std::int64_t, 4> pairs{p.B, p.H, p.Nq, p.Nk};
  if (pass == Pass::forward) return {{"S", pairs}, {"P", pairs}};
  return {{"S", pairs}, {"P", pairs}, {"dP", pairs}, {"dS", pairs}};
}

/// "" or why the grids of these kernels cannot hold a problem.
std::string refuse_oversized_grid(const Problem& p) { return refuse_grid_beyond(p, TILE); }

}  // namespace
}  // namespace flash
