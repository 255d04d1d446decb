// 01 naive, centroids: the kernels that options.cuh launches for --values centroid, after and between its own.
//
//   Rows of V, and of O, are points of the hyperboloid, too. y = O_i, and dO_i . y = D_i.
//   forward    o = sum_j P_ij v_j, with its time component;  N = sqrt(o0^2 - |o|^2);  y = o / N           (9.25)
//              L = L + ln N, which makes P = e^(S - L) weights with y = sum_j P_ij v_j                    (9.26)
//   backward   W = P_ij D_i,  x and theta of the pair (y, v_j)                                            (9.19)
//              dS = P dP - W (1 + x)                                                                      (9.28)
//              dV_j = sum_i P_ij dO_i - W_ij (v_j - y + theta_ij v_j / v0_j)                              (9.29)
//
// HBM: the forward pass reads V once more for each query, without tiles. The backward pass reads O and V as two more products do,
// dO and O for D of each pair, and W and theta W as the gradient of K does.
#pragma once

#include "01_naive/lorentz.cuh"

namespace flash::centroid {
namespace {

/// (9.25), (9.26)  The weighted mean in O becomes the centroid, and P and L follow. The norm is at least the sum of the weights, 1.
/// A thread owns a row.  Grid: (blocks of rows, H, B).
__global__ void centroid_kernel(Problem problem, Tensor<const float> V_all, Tensor<float> P_all, Tensor<float> O_all,
                                Tensor<float> L_all) {
  const int b = blockIdx.z;
  const int h = blockIdx.y;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));
  const Matrix<float> P = P_all.head(b, h), O = O_all.head(b, h);
  float time = 0.0f, square = 0.0f;
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

/// W = P_ij D_i, and theta W next to it.  Grid: (tiles of keys, tiles of queries, B*H).
__global__ void weights_kernel(Problem problem, Tensor<const float> P, Tensor<const float> dO_all, Tensor<const float> O_all,
                               Tensor<const float> V, Tensor<float> W_all, Tensor<float> theta_W) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const Matrix<const float> dO = dO_all.head(b, h), O = O_all.head(b, h);
  const lorentz::Pair pair = lorentz::tile_pair(O, V.head(b, problem.kv_head(h)), row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i >= problem.Nq || j >= problem.Nk) return;  // no barrier follows
  float D = 0.0f;
  for (int c = 0; c < problem.d; ++c) D += dO(i, c) * O(i, c);
  const float W = P.head(b, h)(i, j) * D;
  W_all.head(b, h)(i, j) = W;
  theta_W.head(b, h)(i, j) = W * pair.theta;
}

/// (9.28)  W becomes dS.  Grid: (tiles of keys, tiles of queries, B*H).
__global__ void dS_kernel(Problem problem, Tensor<const float> P, Tensor<const float> dP, Tensor<const float> O,
                          Tensor<const float> V, Tensor<float> W_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const lorentz::Pair pair = lorentz::tile_pair(O.head(b, h), V.head(b, problem.kv_head(h)), row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i >= problem.Nq || j >= problem.Nk) return;  // no barrier follows
  const Matrix<float> W = W_all.head(b, h);
  W(i, j) = P.head(b, h)(i, j) * dP.head(b, h)(i, j) - W(i, j) * (1.0f + pair.x);
}

}  // namespace
}  // namespace flash::centroid
