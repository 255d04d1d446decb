// 01 naive, backward: one launch for each gradient, every matrix written to HBM.
//
//   dV = P^T dO                                                                 (1.10)
//   dP = dO V^T                                                                 (1.11)
//   dS = P o (dP - rowsum(P o dP))                                              (1.12)
//   dQ = scale dS K       dK = scale dS^T Q                                     (1.13), (1.14)
//
// Four are products, by tile_product(); dS_kernel gives each thread a row.
//
// HBM in addition to the forward pass's: dP and dS [B, H, Nq, Nk], 8 Nq Nk bytes per head.
#pragma once

#include "01_naive/products.cuh"

namespace flash {
namespace {

constexpr int dS_ROWS = 128;  // per block, one thread per row

/// (1.11)  dP = dO V^T    [Nq, d] x [d, Nk]: from O = P V, with respect to P.
/// Grid: (tiles of keys, tiles of queries, B*H).
__global__ void dP_kernel(Problem problem, Tensor<const float> dO_all, Tensor<const float> V_all,
                          Tensor<float> dP_all) {
  const Matrix<const float> dO = dO_all.head(blockIdx.z);
  const Matrix<const float> V = V_all.head(problem.kv_head(blockIdx.z));
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float dot = tile_product<false, true>(dO, V, row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i < problem.Nq && j < problem.Nk) dP_all.head(blockIdx.z)(i, j) = dot;
}

/// (1.12)  dS = P o (dP - rowsum(P o dP)): from P = softmax(S). Masked pairs have P = 0, so dS = 0.
/// A thread owns a row. D = rowsum(P o dP) needs all of P and dP; (5.4) computes it without either,
/// from dO and O.  Grid: (blocks of rows, 1, B*H).
__global__ void dS_kernel(Problem problem, Tensor<const float> P_all, Tensor<const float> dP_all,
                          Tensor<float> dS_all) {
  const int i = blockIdx.x * dS_ROWS + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> P = P_all.head(blockIdx.z), dP = dP_all.head(blockIdx.z);
  const Matrix<float> dS = dS_all.head(blockIdx.z);

  float D = 0.0f;
  for (int j = 0; j < problem.Nk; ++j) D += P(i, j) * dP(i, j);
  for (int j = 0; j < problem.Nk; ++j) dS(i, j) = P(i, j) * (dP(i, j) - D);
}

/// (1.13)  dQ = scale dS K    [Nq, Nk] x [Nk, d]: from S = scale Q K^T, with respect to Q.
/// Grid: (tiles of d, tiles of queries, B*H).
__global__ void dQ_kernel(Problem problem, Tensor<const float> dS_all, Tensor<const float> K_all,
                          Tensor<float> dQ_all) {
  const Matrix<const float> dS = dS_all.head(blockIdx.z);
  const Matrix<const float> K = K_all.head(problem.kv_head(blockIdx.z));
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float sum = tile_product<false, false>(dS, K, row0, col0, problem.Nk);
  const int i = row0 + threadIdx.y;
  const int c = col0 + threadIdx.x;
  if (i < problem.Nq && c < problem.d) dQ_all.head(blockIdx.z)(i, c) = problem.scale * sum;
}

/// dX = factor A^T Y    [Nk, Nq] x [Nq, d], summed over a group's query heads, which all read one
/// key/value head: dV (1.10) with A = P, Y = dO and factor 1; dK (1.14) with A = dS, Y = Q and
/// factor scale.  Grid: (tiles of d, tiles of keys, B*Hkv).
__global__ void key_gradient_kernel(Problem problem, float factor, Tensor<const float> A_all,
                                    Tensor<const float> Y_all, Tensor<float> dX_all) {
  const int first_head = blockIdx.z * problem.group_size();
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  float sum = 0.0f;
  for (int head = first_head; head < first_head + problem.group_size(); ++head) {
    sum += tile_product<true, false>(A_all.head(head), Y_all.head(head), row0, col0, problem.Nq);
  }
  const int j = row0 + threadIdx.y;
  const int c = col0 + threadIdx.x;
  if (j < problem.Nk && c < problem.d) dX_all.head(blockIdx.z)(j, c) = factor * sum;
}

/// Runs after the forward pass, which left P in its workspace.
void backward(const Attention& a) {
  const Problem& p = a.problem;
  const auto Q = view<const float>(a.Q), K = view<const float>(a.K), V = view<const float>(a.V);
  const auto dO = view<const float>(a.dO), P = view<const float>(a.workspace("P"));
  const auto dP = a.workspace("dP"), dS = a.workspace("dS");
  const LaunchShape queries = tiled(p.Nq, p.d, p.B * p.H), keys = tiled(p.Nk, p.d, p.B * p.Hkv);
  launch("dV", keys, key_gradient_kernel, p, 1.0f, P, dO, view<float>(a.dV));
  launch("dP", tiled(p.Nq, p.Nk, p.B * p.H), dP_kernel, p, dO, V, view<float>(dP));
  launch("dS", by_rows(p, dS_ROWS, dim3(dS_ROWS)), dS_kernel, p, P, view<const float>(dP),
         view<float>(dS));
  launch("dQ", queries, dQ_kernel, p, view<const float>(dS), K, view<float>(a.dQ));
  launch("dK", keys, key_gradient_kernel, p, p.scale, view<const float>(dS), Q, view<float>(a.dK));
}

}  // namespace
}  // namespace flash
