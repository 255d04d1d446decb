// 07 FlashAttention-2, backward: the gradient of the bias, by another kernel.
//
//   for every pair of tiles of a matrix of the bias (one block each), for every head that shares
//   it:
//     S = scale Q_i K_j^T, capped, + bias, masked;   P = e^(S - L_i)                    (7.1)
//     dP = Z o (dO_i V_j^T)                                                      (7.2), (9.13)
//     dBias_ij += P o (dP - D_i)                                                        (9.16)
//
// New since options, which computes dQ, dK and dV: a kernel that computes P and dP again. A block
// that owns a tile of dBias adds up the heads in their order: it needs no atomics, and no memory
// for the summands.
//
// Grid: (tiles of keys * tiles of queries) * matrices of the bias. Block: 8 warps (parts.cuh).
// HBM: in addition to options, Q, K, V, dO, L, D once for each pair of tiles, and dBias written
//   once (9.17).  Workspace: D.
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "07_fa2_backward/more/options.cuh"
#include "07_fa2_backward/shapes.hpp"
#include "common/parts/bias.cuh"

namespace flash::fa2_backward::more_bias_gradient {
namespace {

/// (9.16)  dBias. Half 0: P. Half 1: dP and the sum.
template <class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    bias_gradient_kernel(Rule rule, Tensors hbm, Tensor<float> dBias) {
  using Scores = typename Shape::Scores;
  const auto& problem = rule.problem;
  const int key_tiles = (problem.Nk - 1) / Shape::Bc + 1,
            query_tiles = (problem.Nq - 1) / Shape::Br + 1;
  const int key0 = blockIdx.x % key_tiles * Shape::Bc,
            query0 = blockIdx.x / key_tiles % query_tiles * Shape::Br;
  const SharingHeads sharing = sharing_heads(problem, blockIdx.x / key_tiles / query_tiles);
  const SharedTiles smem = shared_tiles<Shape>();
  const bool first_half = threadIdx.x < Shape::HALF_THREADS;
  const int last_query = min(query0 + Shape::Br, problem.Nq) - 1;
  const bool seen =
      key0 < problem.end_key(last_query) && problem.first_key(query0) < key0 + Shape::Bc;

  Scores sum(0.0f);  // half 1; stays 0 where no query of the tile sees a key of it
  for (int b = sharing.first_b; seen && b < sharing.end_b; ++b) {
    for (int h = sharing.first_h; h < sharing.end_h; ++h) {
      // Write after read: no thread still reads the previous head's tiles, P or D.
      __syncthreads();
      load_async<Shape, Shape::Bc>(smem.K, hbm.K.head(b, problem.kv_head(h)), key0);
      load_async<Shape, Shape::Bc>(smem.V, hbm.V.head(b, problem.kv_head(h)), key0);
      load_queries<Shape>(smem, hbm, b, h, query0);
      cp_async_commit();
      cp_async_wait<0>();
      // Read after write: all tiles have landed.
      __syncthreads();

      Scores S_or_dP(0.0f);
      add_product(S_or_dP, KMajor{of_half(first_half, smem.Q, smem.dO)},
                  KMajor{of_half(first_half, smem.K, smem.V)});
      if (first_half) {
        rule.apply(S_or_dP, b * problem.H + h, query0, key0);
        store_P(smem, S_or_dP, rule.late_scale);
      } else {
        drop(rule, S_or_dP, b * problem.H + h, query0, key0);
      }
      // Read after write: half 1 reads P of half 0.
      __syncthreads();
      if (first_half) continue;  // and waits for half 1 at the first barrier above
      const Rows<Scores::ROWS> D = of_rows<Scores>(smem.D);
#pragma unroll
      for (int r = 0; r < Scores::ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < Scores::COLS; ++c)
          sum.elements[r][c] +=
              smem.P(Scores::row(r), Scores::col(c)) * (S_or_dP.elements[r][c] - D[r]);
      }
    }
  }
  if (!first_half) write_tile(dBias.head(sharing.b, sharing.h), query0, key0, sum);
}

/// BackwardShape as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct OwnShape : BackwardShape<Sizes...> {};

template <class Shape>
void start(Shape, const Attention& a) {
  more_options::start(Shape{}, a);  // dQ, dK, dV, and D in its workspace
  const FullProblem& p = a.problem;
  const unsigned pairs = blocks_for(p.Nk, Shape::Bc) * blocks_for(p.Nq, Shape::Br);
  with_rule_of(a, pairs, [&]<class Rule>(Rule rule, unsigned tiles) {
    if constexpr (!Rule::RAGGED) {  // a ragged batch has no matrix of biases
      const unsigned blocks = tiles * static_cast<unsigned>(bias_matrices(p));
      launch("fa2_bias_gradient",
             {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
             bias_gradient_kernel<Shape, Rule>, rule, tensors_of(a), view<float>(a.dBias));
    }
  });
}

const Variant variant{
    .name = "bias_gradient",
    .idea = "dBias by one more kernel: a block owns a tile and sums over the heads that share it",
    .backward = start_one_of<options_shapes<OwnShape>>,
    .workspace = workspace,
    .refuse = refuse,
    .tiles = choices_of<options_shapes<OwnShape>>,
    .atomic_dQ = true,
    .by_launches = true,
    .row_multiple = 4,
    .takes = general_problem | usual_options | Features::bias_gradient,
    .needs = Features::bias_gradient};

}  // namespace
}  // namespace flash::fa2_backward::more_bias_gradient
