// 08 Tensor cores, backward: the gradient of the bias, by another kernel.
//
//   for every pair of tiles of a matrix of the bias (one block each), for every head that shares
//   it:
//     P^T = e^(scale K_j Q_i^T, capped, + bias - L_i), masked   [SIDE, d] x [d, SIDE]    (8.11)
//     dP^T = V_j dO_i^T                                      [SIDE, d] x [d, SIDE]       (8.12)
//     dBias_ij += P o (dP - D_i)                                                        (9.16)
//
// New since options.cuh: a kernel that computes P and dP again, as in chapter 07. A block that owns
// a tile of dBias adds up the heads in their order: it needs no atomics, and no memory for the
// summands. options.cuh computes dQ, dK and dV.
//
// Grid: (tiles of keys * tiles of queries) * matrices of the bias.
// Block: warps; a warp owns 16 keys of the tile.
// HBM: in addition to options.cuh, Q, K, V, dO, L, D once for each pair of tiles, and dBias written
//   once (9.17).
// Workspace: as in options.cuh.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/backward/more/options.cuh"
#include "common/parts/bias.cuh"

namespace flash::tensor_cores::backward_more_bias_gradient {
namespace {

/// The tile of a block, SIDE x SIDE, the largest that fits wherever that kernel runs: each head
/// loads its four operands anew.
template <class BaseShape>
struct BiasShape {
  static constexpr int Width = BaseShape::Width, SIDE = BaseShape::Br >= 32 ? 64 : 32,
                       THREADS = SIDE / 16 * WARP;
  static constexpr int SHARED_ELEMENTS =
      Width * 4 * SIDE + 4 * SIDE;  // K, V, Q, dO; L and D: 2 rows of SIDE floats
  static constexpr int MIN_SM = BaseShape::MIN_SM, BLOCKS = 2;  // per SM; three would spill

  static_assert(SHARED_ELEMENTS <= BaseShape::SHARED_ELEMENTS, "it runs wherever that kernel does");
};

/// (9.16)  dBias.
template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    bias_gradient_kernel(Rule rule, BackwardTensors<T> hbm, Tensor<float> dBias_all) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  constexpr int SIDE = Shape::SIDE;
  const OptionsProblem& problem = rule.problem;
  const int key_tiles = (problem.Nk - 1) / SIDE + 1, query_tiles = (problem.Nq - 1) / SIDE + 1;
  const int key0 = blockIdx.x % key_tiles * SIDE,
            query0 = blockIdx.x / key_tiles % query_tiles * SIDE;
  const SharingHeads sharing = sharing_heads(problem, blockIdx.x / key_tiles / query_tiles);

  const Tile<T, Shape::Width> K_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), SIDE),
      V_smem(K_smem.end(), SIDE), Q_smem(V_smem.end(), SIDE), dO_smem(Q_smem.end(), SIDE);
  const QueryStats<> stats{{reinterpret_cast<float*>(dO_smem.end()), 2, SIDE, SIDE}};
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first key of the tile

  const bool seen = !rule.hides(query0, SIDE, key0, SIDE);
  // Transposed: [16, SIDE]. It stays 0 where no query of the tile sees a key of it.
  Accumulators<1, SIDE / 8> sum(0.0f);
  for (int b = sharing.first_b; seen && b < sharing.end_b; ++b) {
    for (int h = sharing.first_h; h < sharing.end_h; ++h) {
      // Write after read: no warp still reads the previous head's tiles.
      __syncthreads();
      load_async<Shape::THREADS, SIDE>(K_smem, hbm.K.head(b, problem.kv_head(h)), key0);
      load_async<Shape::THREADS, SIDE>(V_smem, hbm.V.head(b, problem.kv_head(h)), key0);
      load_async<Shape::THREADS, SIDE>(Q_smem, hbm.Q.head(b, h), query0);
      load_async<Shape::THREADS, SIDE>(dO_smem, hbm.dO.head(b, h), query0);
      load_async<SIDE>(stats, hbm.L_and_D.head(b, h), query0);
      cp_async_wait_all();
      // Read after write: the tiles of all threads have landed.
      __syncthreads();

      Accumulators<1, SIDE / 8> St(0.0f), dPt(0.0f);
      add_product(St, K_smem.left(warp_row), Q_smem.transposed());  // (8.11)
      rule.template apply</*Transposed=*/true>(St, b * problem.H + h, query0, key0 + warp_row);
      recompute_P(St, stats, rule.late_scale, rule.subtract_first());
      auto& Pt = St;
      mark_dropped(rule, Pt, b * problem.H + h, query0, key0 + warp_row);
      add_product(dPt, V_smem.left(warp_row), dO_smem.transposed());  // (8.12)
      drop_gradients(rule, dPt, Pt);                                  // (9.13); Pt loses its marks
      dPt.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });
#pragma unroll
      for (int index = 0; index < SIDE / 8 * 4; ++index) {
        sum.elements[0][index / 4][index % 4] +=
            Pt.elements[0][index / 4][index % 4] * dPt.elements[0][index / 4][index % 4];
      }
    }
  }
  const Matrix<float> dBias = dBias_all.head(sharing.b, sharing.h);
  sum.each_at([&](float x, int key, int query) {
    const int i = query0 + query, j = key0 + warp_row + key;
    if (i < problem.Nq && j < problem.Nk) dBias(i, j) = x;
  });
}

/// The shape of options as a type of this file, by which shapes.hpp finds start().
template <int... Sizes>
struct OwnShape : backward_more_options::BackwardShape<Sizes...> {};

template <int... Sizes>
void start(OwnShape<Sizes...>, const Attention& a) {
  using BaseShape = backward_more_options::BackwardShape<Sizes...>;
  backward_more_options::start(BaseShape{}, a);  // dQ, dK, dV, and L and D in their workspace
  using Shape = BiasShape<BaseShape>;
  in_type_of(a, [&]<class T>(T) {
    const FullProblem& p = a.problem;
    const BackwardTensors<T> hbm = tensors_of<T>(a);
    const unsigned pairs = blocks_for(p.Nk, Shape::SIDE) * blocks_for(p.Nq, Shape::SIDE);
    with_rule_of(a, pairs, [&]<class Rule>(Rule rule, unsigned tiles) {
      if constexpr (!Rule::RAGGED) {  // a ragged batch has no matrix of biases
        launch("bias_gradient",
               {dim3(tiles * static_cast<unsigned>(bias_matrices(p))), dim3(Shape::THREADS),
                Shape::SHARED_ELEMENTS * sizeof(T)},
               bias_gradient_kernel<T, Shape, Rule>, rule, hbm, view<float>(a.dBias));
      }
    });
  });
}

const Variant variant = [] {
  Variant step = backward_more_options::variant;
  step.name = "bias_gradient";
  step.idea = "dBias by one more kernel: a block owns a tile and sums over the heads that share it";
  step.backward = start_one_of<five_products_shapes<OwnShape>>;
  step.takes = step.takes | Features::bias_gradient;
  step.needs = Features::bias_gradient;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::backward_more_bias_gradient
