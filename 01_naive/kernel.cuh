// 01 naive: attention as its formula reads, every matrix written to HBM.
//
//   forward    S = scale Q K^T + bias, masked                                           (1.1)
//              P = exp(S) / rowsum(exp(S))            softmax without the max           (1.2)
//              O = P V                                                                  (1.3)
//              L = ln rowsum(exp(S))                                                    (1.4)
//   backward   dV = P^T dO                                                              (1.10)
//              dP = dO V^T                                                              (1.11)
//              dS = P o (dP - rowsum(P o dP))                                           (1.12)
//              dQ = scale dS K       dK = scale dS^T Q                                  (1.13), (1.14)
//
// Eight launches: three forward, then one per matrix of the backward pass. The six matrix products share tile_product(): a
// block of TILE x TILE threads computes a TILE x TILE tile of the result, one element per thread. The two row-wise kernels
// give each thread a row.
//
// HBM in addition to inputs and outputs: S and P [B, H, Nq, Nk], 8 Nq Nk bytes per head; backward also dP and dS, 16 Nq Nk.
// Shared memory: two tiles, 8.25 KiB.  Shapes: all. exp() overflows once a score exceeds 88.7, and loses rows whose scores are
// all below -104; chapter 02 fixes both.
//
// Names that every kernel file uses:
//   A B, A o B               matrix product, elementwise product
//   B, H, Hkv; Nq, Nk, d     batch, query heads, key/value heads (H / Hkv query heads share head problem.kv_head(h) of K and
//                            V); queries, keys, columns of a head.  i: a query, j: a key, c: a column
//   Tensor, Matrix, Vector   pointers with sizes and strides (common/machine/gpu/view.cuh): Q_all.head(b, h) is a head's matrix,
//                            and Q_all.head(b, h)(i, c) one element
//   Problem, score()         Problem has the sizes; score() scales a product, adds the bias and masks (common/parts/score.cuh)
//   launch(), Variant        launch(name, {grid, block}, kernel, arguments...) is kernel<<<grid, block>>>(arguments...), with
//                            errors checked; view<float>(a.workspace("S")) is a matrix in HBM that the Variant at the end of
//                            the file asks for. The Variant tells the programs what the file offers
#pragma once

#include "common/parts/kernel.cuh"

namespace flash {
namespace {

// A warp is a row of the tile: 32 threads side by side read 32 neighbouring elements, one 128-byte line of HBM.
constexpr int TILE = 32;
constexpr int ROWS_PER_BLOCK = 128;  // of the row-wise kernels: one thread per row

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

// ---- forward ---------------------------------------------------------------------------------------------------------------

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

/// (1.2), (1.4)  A thread reads its row of S twice: once for the sum, once to normalise.  Grid: (blocks of rows, H, B).
__global__ void softmax_kernel(Problem problem, Tensor<const float> S_all, Tensor<float> P_all, Tensor<float> L_all) {
  const int b = blockIdx.z;
  const int h = blockIdx.y;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> S = S_all.head(b, h);
  const Matrix<float> P = P_all.head(b, h);

  float l = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) l += expf(S(i, j));
  const float inverse = l == 0.0f ? 0.0f : 1.0f / l;  // no key, or every exp underflowed: P = 0, not 0/0
  for (int j = 0; j < problem.Nk; ++j) P(i, j) = expf(S(i, j)) * inverse;
  L_all.head_vector(b, h)(i) = logf(l);
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

// ---- backward --------------------------------------------------------------------------------------------------------------

/// (1.11)  dP = dO V^T    [Nq, d] x [d, Nk]: from O = P V, with respect to P.  Grid: (tiles of keys, tiles of queries, B*H).
__global__ void dP_kernel(Problem problem, Tensor<const float> dO_all, Tensor<const float> V_all, Tensor<float> dP_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float dot = tile_product<false, true>(dO_all.head(b, h), V_all.head(b, problem.kv_head(h)), row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i < problem.Nq && j < problem.Nk) dP_all.head(b, h)(i, j) = dot;
}

/// (1.12)  dS = P o (dP - rowsum(P o dP)): from P = softmax(S). Masked pairs have P = 0, so dS = 0.
/// A thread owns a row. D = rowsum(P o dP) needs all of P and dP; (5.4) computes it without either, from dO and O.
/// Grid: (blocks of rows, H, B).
__global__ void dS_kernel(Problem problem, Tensor<const float> P_all, Tensor<const float> dP_all, Tensor<float> dS_all) {
  const int b = blockIdx.z;
  const int h = blockIdx.y;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> P = P_all.head(b, h);
  const Matrix<const float> dP = dP_all.head(b, h);
  const Matrix<float> dS = dS_all.head(b, h);

  float D = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) D += P(i, j) * dP(i, j);
  for (int j = 0; j < problem.Nk; ++j) dS(i, j) = P(i, j) * (dP(i, j) - D);
}

/// (1.13)  dQ = scale dS K    [Nq, Nk] x [Nk, d]: from S = scale Q K^T, with respect to Q.
/// Grid: (tiles of d, tiles of queries, B*H).
__global__ void dQ_kernel(Problem problem, Tensor<const float> dS_all, Tensor<const float> K_all, Tensor<float> dQ_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float sum = tile_product<false, false>(dS_all.head(b, h), K_all.head(b, problem.kv_head(h)), row0, col0, problem.Nk);
  const int i = row0 + threadIdx.y;
  const int c = col0 + threadIdx.x;
  if (i < problem.Nq && c < problem.d) dQ_all.head(b, h)(i, c) = problem.scale * sum;
}

/// dX = factor A^T Y    [Nk, Nq] x [Nq, d], summed over a group's query heads, which all read one key/value head:
/// dV (1.10) with A = P, Y = dO and factor 1; dK (1.14) with A = dS, Y = Q and factor scale.
/// Grid: (tiles of d, tiles of keys, B*Hkv).
__global__ void key_gradient_kernel(Problem problem, float factor, Tensor<const float> A_all, Tensor<const float> Y_all,
                                    Tensor<float> dX_all) {
  const int b = blockIdx.z / problem.Hkv;
  const int kv_head = blockIdx.z % problem.Hkv;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  float sum = 0.0f;
  for (int member = 0; member < problem.group_size(); ++member) {
    const int h = kv_head * problem.group_size() + member;
    sum += tile_product<true, false>(A_all.head(b, h), Y_all.head(b, h), row0, col0, problem.Nq);
  }
  const int j = row0 + threadIdx.y;
  const int c = col0 + threadIdx.x;
  if (j < problem.Nk && c < problem.d) dX_all.head(b, kv_head)(j, c) = factor * sum;
}

// ---- launch ----------------------------------------------------------------------------------------------------------------

/// One block per TILE x TILE tile of a [rows, cols] result, for `heads` results.
LaunchShape tiled(int rows, int cols, int heads) {
  return {dim3(blocks_for(cols, TILE), blocks_for(rows, TILE), static_cast<unsigned>(heads)), dim3(TILE, TILE)};
}

/// One thread per row.
LaunchShape row_per_thread(const Problem& p) {
  return {dim3(blocks_for(p.Nq, ROWS_PER_BLOCK), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B)), dim3(ROWS_PER_BLOCK)};
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  const auto Q = view<const float>(a.Q), K = view<const float>(a.K), V = view<const float>(a.V);
  const auto S = a.workspace("S"), P = a.workspace("P");
  launch("scores", tiled(p.Nq, p.Nk, p.B * p.H), scores_kernel, p, Q, K, bias_of(a), view<float>(S));
  launch("softmax", row_per_thread(p), softmax_kernel, p, view<const float>(S), view<float>(P), view<float>(a.L));
  launch("output", tiled(p.Nq, p.d, p.B * p.H), output_kernel, p, view<const float>(P), V, view<float>(a.O));
}

/// Runs after forward(), which left P in its workspace.
void backward(const Attention& a) {
  const Problem& p = a.problem;
  const auto Q = view<const float>(a.Q), K = view<const float>(a.K), V = view<const float>(a.V), dO = view<const float>(a.dO);
  const auto P = view<const float>(a.workspace("P"));
  const auto dP = a.workspace("dP"), dS = a.workspace("dS");
  launch("dV", tiled(p.Nk, p.d, p.B * p.Hkv), key_gradient_kernel, p, 1.0f, P, dO, view<float>(a.dV));
  launch("dP", tiled(p.Nq, p.Nk, p.B * p.H), dP_kernel, p, dO, V, view<float>(dP));
  launch("dS", row_per_thread(p), dS_kernel, p, P, view<const float>(dP), view<float>(dS));
  launch("dQ", tiled(p.Nq, p.d, p.B * p.H), dQ_kernel, p, view<const float>(dS), K, view<float>(a.dQ));
  launch("dK", tiled(p.Nk, p.d, p.B * p.Hkv), key_gradient_kernel, p, p.scale, view<const float>(dS), Q, view<float>(a.dK));
}

/// "" or why the grids of these kernels cannot hold a problem.
std::string refuse_oversized_grid(const Problem& p) { return refuse_grid_beyond(p, TILE); }

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  const std::array<std::int64_t, 4> scores{p.B, p.H, p.Nq, p.Nk};
  if (pass == Pass::forward) return {{"S", scores}, {"P", scores}};
  return {{"S", scores}, {"P", scores}, {"dP", scores}, {"dS", scores}};
}

const Variant variant{.name = "naive",
                      .idea = "S and P written to HBM, softmax without the max",
                      .forward = forward,
                      .backward = backward,
                      .workspace = workspace,
                      .refuse = refuse_oversized_grid,
                      .subtracts_max = false};

}  // namespace
}  // namespace flash
