// 01 naive, hyperbolic scores (06_fa2_forward/more/hyperbolic.md): the kernels that options.cuh
// launches for --score lorentz.
//
//   A row q is a point of the hyperboloid with the time component q0 = sqrt(1 + |q|^2).
//   forward    theta = q0 - k0,   x = (|q - k|^2 - theta^2) / 2  (9.18), (9.19)
//              s = -scale d,   d = 2 asinh(sqrt(x / 2))                                  (9.20)
//   backward   G = -dS / sqrt(x (x + 2)),   or 0 where x = 0                             (9.21)
//              dQ_i = scale sum_j G_ij (q_i - k_j - theta_ij q_i / q0_i)                 (9.22)
//              dK_j = scale sum_i G_ij (k_j - q_i + theta_ij k_j / k0_j)                 (9.22)
//
// HBM: scores and slopes read Q and K as a product does. For an element of a gradient a thread
// reads a row or column of G, of theta G and of the other matrix, and its own row once more for
// time_of(), without tiles.
#pragma once

#include "01_naive/kernel.cuh"
#include "01_naive/more/score.cuh"

namespace flash::lorentz {
namespace {

/// What a pair of rows is to each other.
struct Pair {
  float x;      ///< cosh(distance) - 1
  float theta;  ///< q0 - k0
};

/// The time component of a row.
__device__ inline float time_of(const Matrix<const float>& M, int row) {
  float square = 0.0f;
  for (int c = 0; c < M.cols; ++c) {
    const float x = M(row, c);
    square += x * x;
  }
  return sqrtf(1.0f + square);
}

/// The pair of this thread's query row0 + threadIdx.y and key col0 + threadIdx.x, in tiles like
/// tile_product().  Everything is made of differences, so that near points keep their digits.  All
/// threads of the block must call it.
__device__ inline Pair tile_pair(const Matrix<const float>& Q, const Matrix<const float>& K,
                                 int row0, int col0, int d) {
  __shared__ Tile Q_tile;
  __shared__ Tile K_tile;
  float squared_difference = 0.0f;         // |q - k|^2
  float difference_of_squares = 0.0f;      // (q - k) . (q + k) = q0^2 - k0^2
  float q_square = 1.0f, k_square = 1.0f;  // q0^2, k0^2
  for (int c0 = 0; c0 < d; c0 += TILE) {
    load_tile(Q_tile, Q, row0, c0);
    load_tile(K_tile, K, col0, c0);
    // Read after write: a thread reads what others have loaded.
    __syncthreads();
    for (int c = 0; c < TILE; ++c) {
      const float q = Q_tile[threadIdx.y][c], k = K_tile[threadIdx.x][c];
      squared_difference += (q - k) * (q - k);
      difference_of_squares += (q - k) * (q + k);
      q_square += q * q;
      k_square += k * k;
    }
    // Write after read: the next load overwrites tiles that slower warps still read.
    __syncthreads();
  }
  const float theta = difference_of_squares / (sqrtf(q_square) + sqrtf(k_square));
  return {fmaxf(0.5f * (squared_difference - theta * theta), 0.0f), theta};
}

/// (9.20)  The distance of two points.
__device__ inline float distance(float x) { return 2.0f * asinhf(sqrtf(0.5f * x)); }

/// (9.21)  Its derivative with respect to x; where the points coincide it has a kink, and 0 is a
/// subgradient.
__device__ inline float slope_of_distance(float x) {
  return x == 0.0f ? 0.0f : 1.0f / (sqrtf(x) * sqrtf(x + 2.0f));
}

/// (9.20)  S = -scale d + bias, masked.  Grid: (tiles of keys, tiles of queries, B*H).
__global__ void scores_kernel(OptionsProblem problem, Tensor<const float> Q_all,
                              Tensor<const float> K_all, Bias bias, Tensor<float> S_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const Pair pair =
      tile_pair(Q_all.head(b, h), K_all.head(b, problem.kv_head(h)), row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i < problem.Nq && j < problem.Nk)
    S_all.head(b, h)(i, j) = score(problem, bias, b, h, i, j, -distance(pair.x));
}

/// (9.21)  dS becomes G, and theta G is written next to it.  Grid: (tiles of keys, tiles of
/// queries, B*H).
__global__ void slope_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                             Tensor<float> dS_all, Tensor<float> theta_G_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const Pair pair =
      tile_pair(Q_all.head(b, h), K_all.head(b, problem.kv_head(h)), row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i >= problem.Nq || j >= problem.Nk) return;  // no barrier follows
  const Matrix<float> dS = dS_all.head(b, h);
  const float G = -dS(i, j) * slope_of_distance(pair.x);
  dS(i, j) = G;
  theta_G_all.head(b, h)(i, j) = G * pair.theta;
}

/// (9.22)  dQ. A thread owns an element.  Grid: (tiles of d, tiles of queries, B*H).
__global__ void dQ_kernel(Problem problem, Tensor<const float> G_all,
                          Tensor<const float> theta_G_all, Tensor<const float> Q_all,
                          Tensor<const float> K_all, Tensor<float> dQ_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int i = blockIdx.y * TILE + threadIdx.y;
  const int c = blockIdx.x * TILE + threadIdx.x;
  if (i >= problem.Nq || c >= problem.d) return;  // no barrier follows
  const Matrix<const float> G = G_all.head(b, h), theta_G = theta_G_all.head(b, h),
                            Q = Q_all.head(b, h), K = K_all.head(b, problem.kv_head(h));
  const float q = Q(i, c);
  float space_sum = 0.0f, time_sum = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) {
    space_sum += G(i, j) * (q - K(j, c));
    time_sum += theta_G(i, j);
  }
  dQ_all.head(b, h)(i, c) = problem.scale * (space_sum - time_sum * q / time_of(Q, i));
}

/// (9.22)  dK: the sum over a group's query heads. A thread owns an element.  Grid: (tiles of d,
/// tiles of keys, B*Hkv).
__global__ void dK_kernel(Problem problem, Tensor<const float> G_all,
                          Tensor<const float> theta_G_all, Tensor<const float> Q_all,
                          Tensor<const float> K_all, Tensor<float> dK_all) {
  const int b = blockIdx.z / problem.Hkv;
  const int kv_head = blockIdx.z % problem.Hkv;
  const int j = blockIdx.y * TILE + threadIdx.y;
  const int c = blockIdx.x * TILE + threadIdx.x;
  if (j >= problem.Nk || c >= problem.d) return;  // no barrier follows
  const Matrix<const float> K = K_all.head(b, kv_head);
  const float k = K(j, c), k0 = time_of(K, j);
  float sum = 0.0f;
  for (int member = 0; member < problem.group_size(); ++member) {
    const int h = kv_head * problem.group_size() + member;
    const Matrix<const float> G = G_all.head(b, h), theta_G = theta_G_all.head(b, h),
                              Q = Q_all.head(b, h);
    float space_sum = 0.0f, time_sum = 0.0f;
    for (int i = 0; i < problem.Nq; ++i) {
      space_sum += G(i, j) * (k - Q(i, c));
      time_sum += theta_G(i, j);
    }
    sum += space_sum + time_sum * k / k0;
  }
  dK_all.head(b, kv_head)(j, c) = problem.scale * sum;
}

}  // namespace
}  // namespace flash::lorentz
