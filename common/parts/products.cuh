// The matrix products around a softmax that is written to HBM: S = scale Q K^T + bias before it, O = P V after it. Chapter 01
// introduces them in a file that can be read alone; their code is repeated here for chapters 02 and 03, which change only
// the softmax.
#pragma once

#include "common/parts/kernel.cuh"

namespace flash {
namespace {

// A warp is a row of the tile: 32 threads side by side read 32 neighbouring elements, one 128-byte line of HBM.
constexpr int TILE = 32;

// One column of padding: a warp that walks down a column of a tile then hits 32 different banks, not one bank 32 times.
using Tile = float[TILE][TILE + 1];

/// Copies the TILE x TILE tile of M that starts at (row0, col0), with zeros beyond the edges, so that products need no test.
__device__ inline void load_tile(Tile& tile, const Matrix<const float>& M, int row0, int col0) {
  const int row = row0 + threadIdx.y;
  const int col = col0 + threadIdx.x;
  tile[threadIdx.y][threadIdx.x] = row < M.rows && col < M.cols ? M(row, col) : 0.0f;
}

/// This thread's element of the tile of C = op(A) op(B) that starts at (row0, col0), where op transposes on request and `depth`
/// is the inner dimension: C(row0 + threadIdx.y, col0 + threadIdx.x).  All threads of the block must call it.
/// Each element of a tile is read TILE times from shared memory, so traffic from HBM falls by a factor of TILE (1.6).
template <bool TransposeA, bool TransposeB>
__device__ float tile_product(const Matrix<const float>& A, const Matrix<const float>& B, int row0, int col0, int depth) {
  __shared__ Tile A_tile;  // [TILE rows, TILE of depth]; with TransposeA as A is stored, [TILE of depth, TILE rows]
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

/// (1.1)  S = scale Q K^T + bias, masked    [Nq, d] x [d, Nk].  Grid: (tiles of keys, tiles of queries, B*H).
__global__ void scores_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all, Bias bias,
                              Tensor<float> S_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float dot = tile_product<false, true>(Q_all.head(b, h), K_all.head(b, problem.kv_head(h)), row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i < problem.Nq && j < problem.Nk) S_all.head(b, h)(i, j) = score(problem, bias, b, h, i, j, dot);
}

/// (1.3)  O = P V    [Nq, Nk] x [Nk, d].  Grid: (tiles of d, tiles of queries, B*H).
__global__ void output_kernel(Problem problem, Tensor<const float> P_all, Tensor<const float> V_all, Tensor<float> O_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float sum = tile_product<false, false>(P_all.head(b, h), V_all.head(b, problem.kv_head(h)), row0, col0, problem.Nk);
  const int i = row0 + threadIdx.y;
  const int c = col0 + threadIdx.x;
  if (i < problem.Nq && c < problem.d) O_all.head(b, h)(i, c) = sum;
}

/// A TILE x TILE tile of a [rows, cols] result to each block, for `heads` results.
LaunchShape tiled(int rows, int cols, int heads) {
  return {dim3(blocks_for(cols, TILE), blocks_for(rows, TILE), static_cast<unsigned>(heads)), dim3(TILE, TILE)};
}

void launch_scores(const Attention& a) {
  const Problem& p = a.problem;
  launch("scores", tiled(p.Nq, p.Nk, p.B * p.H), scores_kernel, p, view<const float>(a.Q), view<const float>(a.K), bias_of(a),
         view<float>(a.workspace("S")));
}

void launch_output(const Attention& a) {
  const Problem& p = a.problem;
  launch("output", tiled(p.Nq, p.d, p.B * p.H), output_kernel, p, view<const float>(a.workspace("P")), view<const float>(a.V),
         view<float>(a.O));
}

/// "" or why the grids of these kernels cannot hold a problem.
std::string refuse_oversized_grid(const Problem& p) { return refuse_grid_beyond(p, TILE); }

/// S and P [B, H, Nq, Nk].
std::vector<WorkspaceSpec> scores_workspace(const Problem& p, Pass) {
  const std::array<std::int64_t, 4> scores{p.B, p.H, p.Nq, p.Nk};
  return {{"S", scores}, {"P", scores}};
}

}  // namespace
}  // namespace flash
