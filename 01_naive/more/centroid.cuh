// 01 naive, centroids (06_fa2_forward/more/hyperbolic.md): the kernels that options.cuh launches
// for --values centroid, after and between its own.
//
//   Rows of V, and of O, are points of the hyperboloid, too; y = O_i, D = dO_i . y. (The D of
//   dS_kernel, rowsum(P o dP), is 0 for this dP by (9.29), and is subtracted all the same.)
//   forward    o = sum_j P_ij v_j and its time component; n = sqrt(o0^2 - |o|^2), y = o / n  (9.25)
//              L = L + ln n, which makes P = e^(S - L) weights with y = sum_j P_ij v_j  (9.26)
//   backward   d_sum_i = dO_i + D y, d_time_i = -D y0, gradient of (o, o0)  (9.28)
//              dP_ij = d_sum_i . v_j + d_time_i v0_j,  and rowsum(P dP) = 0  (9.29)
//              dV_j = sum_i P_ij (d_sum_i + d_time_i v_j / v0_j)  (9.29)
//
// HBM: the forward pass reads V once more per query, without tiles. The backward pass has d_sum
// where kernel.cuh has dO, and each element of dV reads a column of P and d_time once more.
// Workspace: d_sum [B, H, Nq, d]; d_time [B, H, Nq].
#pragma once

#include "01_naive/more/lorentz.cuh"

namespace flash::centroid {
namespace {

/// (9.25), (9.26)  The weighted mean in O becomes the centroid, and P and L follow. The norm is at
/// least 1, the sum of the weights (9.27). A thread owns a row.  Grid: (blocks of rows, 1, B*H).
__global__ void centroid_kernel(Problem problem, Tensor<const float> V_all, Tensor<float> P_all,
                                Tensor<float> O_all, Tensor<float> L_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));
  const Matrix<float> P = P_all.head(b, h), O = O_all.head(b, h);
  float time = 0.0f, square = 0.0f;  // o0, |o|^2
  for (int j = 0; j < problem.Nk; ++j) time += P(i, j) * lorentz::time_of(V, j);
  for (int c = 0; c < problem.d; ++c) {
    const float o = O(i, c);
    square += o * o;
  }
  const float length = sqrtf(square), norm = sqrtf(fmaxf((time - length) * (time + length), 1.0f));
  for (int c = 0; c < problem.d; ++c) O(i, c) /= norm;
  for (int j = 0; j < problem.Nk; ++j) P(i, j) /= norm;
  L_all.head_vector(b, h)(i) += logf(norm);
}

/// (9.28)  d_sum and d_time, the gradient of the weighted sum. A thread owns a row.  Grid:
/// (blocks of rows, 1, B*H).
__global__ void sum_gradient_kernel(Problem problem, Tensor<const float> dO_all,
                                    Tensor<const float> O_all, Tensor<float> d_sum_all,
                                    Tensor<float> d_time_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> dO = dO_all.head(b, h), O = O_all.head(b, h);
  const Matrix<float> d_sum = d_sum_all.head(b, h);
  float D = 0.0f, square = 1.0f;  // dO . y, y0^2
  for (int c = 0; c < problem.d; ++c) {
    const float y = O(i, c);
    D += dO(i, c) * y;
    square += y * y;
  }
  for (int c = 0; c < problem.d; ++c) d_sum(i, c) = dO(i, c) + D * O(i, c);
  d_time_all.head_vector(b, h)(i) = -D * sqrtf(square);
}

/// (9.29)  dP, in tiles like tile_product().  Grid: (tiles of keys, tiles of queries, B*H).
__global__ void dP_kernel(Problem problem, Tensor<const float> d_sum_all,
                          Tensor<const float> d_time_all, Tensor<const float> V_all,
                          Tensor<float> dP_all) {
  __shared__ Tile d_sum_tile;
  __shared__ Tile V_tile;
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const Matrix<const float> d_sum = d_sum_all.head(b, h), V = V_all.head(b, problem.kv_head(h));
  float dot = 0.0f, square = 1.0f;  // d_sum . v, v0^2
  for (int c0 = 0; c0 < problem.d; c0 += TILE) {
    load_tile(d_sum_tile, d_sum, blockIdx.y * TILE, c0);
    load_tile(V_tile, V, blockIdx.x * TILE, c0);
    // Read after write: a thread reads what others have loaded.
    __syncthreads();
    for (int c = 0; c < TILE; ++c) {
      const float v = V_tile[threadIdx.x][c];
      dot += d_sum_tile[threadIdx.y][c] * v;
      square += v * v;
    }
    // Write after read: the next load overwrites tiles that slower warps still read.
    __syncthreads();
  }
  const int i = blockIdx.y * TILE + threadIdx.y;
  const int j = blockIdx.x * TILE + threadIdx.x;
  if (i < problem.Nq && j < problem.Nk)
    dP_all.head(b, h)(i, j) = dot + d_time_all.head_vector(b, h)(i) * sqrtf(square);
}

/// (9.29)  The time components' share of dV, added to P^T d_sum. A thread owns an element.
/// Grid: (tiles of d, tiles of keys, B*Hkv).
__global__ void add_time_kernel(Problem problem, Tensor<const float> P_all,
                                Tensor<const float> d_time_all, Tensor<const float> V_all,
                                Tensor<float> dV_all) {
  const int b = blockIdx.z / problem.Hkv;
  const int kv_head = blockIdx.z % problem.Hkv;
  const int j = blockIdx.y * TILE + threadIdx.y;
  const int c = blockIdx.x * TILE + threadIdx.x;
  if (j >= problem.Nk || c >= problem.d) return;  // no barrier follows
  const Matrix<const float> V = V_all.head(b, kv_head);
  float in_time = 0.0f;
  for (int member = 0; member < problem.group_size(); ++member) {
    const int h = kv_head * problem.group_size() + member;
    const Matrix<const float> P = P_all.head(b, h);
    const Vector<const float> d_time = d_time_all.head_vector(b, h);
    for (int i = 0; i < problem.Nq; ++i) in_time += P(i, j) * d_time(i);
  }
  dV_all.head(b, kv_head)(j, c) += in_time * V(j, c) / lorentz::time_of(V, j);
}

}  // namespace
}  // namespace flash::centroid
