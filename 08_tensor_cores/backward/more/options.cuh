// 08 Tensor cores, backward: what the steps leave out: biases, any scale, the options of chapter
// 09.
//
//   P^T = e^(scale K_j Q_i^T, capped, + bias - L_i), masked                              (8.11)
//   dS^T = slope o P^T o (dP^T - D_i)                                                    (9.2)
//
// New since step 2, in the order of the code:
// - The rule of the scores is a parameter of the kernel. OptionsRule caps scaled scores, adds the
//   bias, and hides what is outside the window.
// - A block of a ragged batch looks up its sequence and narrows the tensors to it.
// - For a deterministic pass the kernel is launched `launches` times, each time for every
//   launches-th tile of keys, so that in one launch a row of dQ gets one addition.
// - With a window, a tile of keys has a last query as well as a first one, and keys that no query
//   sees get dK = dV = 0.
// - A softcap multiplies dS by its slope, which waits in 16 bits where the warp will store dS.
// - Dropout draws once: a dropped P becomes -P. dV takes Z o P, which is 0 where P is negative; dS
//   takes |P| and Z o dP.
// - dV is multiplied as soon as P^T is known, before dP^T.
//
// Grid: as step 2, in a ragged batch COLUMN_BLOCKS blocks per tile of a sequence and head of K, V.
// HBM, shapes: as step 2, but only the tiles in the window are visited.  Workspace: as step 2, in a
//   ragged batch with padding for each sequence.
#pragma once

#include "08_tensor_cores/backward/more/options_before_and_after.cuh"
#include "08_tensor_cores/backward/shapes.hpp"
#include "08_tensor_cores/forward/more/drop.cuh"
#include "08_tensor_cores/parts/add_to_dQ.cuh"

namespace flash::tensor_cores::backward_more_options {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows of transposed scores, per warp
  static constexpr int QUERY_FRAGMENTS = Br / 8;      // of 8 columns of transposed scores
  static constexpr int THREADS = Bc / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;  // per SM (occupancy); they share its registers
  static constexpr int STAGES = 2, PT_OR_DST_TILES = 1;  // tiles of Q and dO; of dS^T
  // As in step 2: registers hold so many columns of dK and dV.
  static constexpr int COLS = Width > 128 ? 128 : Width, COLUMN_BLOCKS = Width / COLS;
  static constexpr int SHARED_ELEMENTS = shared_elements(Width, Br, Bc, STAGES, PT_OR_DST_TILES);
  static constexpr WarpGrid DQ_WARPS{THREADS / WARP, Br, COLS};
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2);

  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L and D");
  static_assert(2 * THREADS >= Br, "load_async() copies four elements of L and D per thread");
  static_assert(DQ_WARPS.rows * DQ_WARPS.cols * WARP == THREADS, "each warp has a share of dQ");
};

/// As load_queries(), of a batch that may be ragged.
template <class Shape, class T, class Rule>
__device__ void load_queries_of(const Rule& rule, const SharedTiles<T, Shape>& smem, int stage,
                                const BackwardTensors<T>& hbm, int b, QueryTile at) {
  load_async<Shape::THREADS, Shape::Br>(smem.Q(stage), queries_of(rule, hbm.Q).head(b, at.h),
                                        at.query0);
  load_async<Shape::THREADS, Shape::Br>(smem.dO(stage), queries_of(rule, hbm.dO).head(b, at.h),
                                        at.query0);
  load_async<Shape::Br>(smem.stats(stage), hbm.L_and_D.head(b, at.h), row_of(rule, at.query0));
}

/// The slopes of the softcap, in 16 bits, in the rows of dS that the warp owns.
template <class T, class Shape>
struct Slopes {
  Tile<T, Shape::Br> rows;

  template <class Scores>
  __device__ void store(const Scores& slopes) const {
    tensor_cores::store(rows, slopes);
  }
  /// (9.2)  dS times the slopes, where store() has put them.
  template <class Scores>
  __device__ void multiply_into(Scores& dS) const {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < Scores::ROWS; ++r) {
#pragma unroll
      for (int n = 0; n < Scores::WIDTH / 8; ++n) {
        const unsigned both =
            rows.template as<unsigned>(8 * r + lane / 4, 8 * n + fragment::c_col(lane, 0));
        const float2 pair = unpack<T>(both);
        dS.elements[r / 2][n][2 * (r % 2)] *= pair.x;
        dS.elements[r / 2][n][2 * (r % 2) + 1] *= pair.y;
      }
    }
  }
};

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    backward_kernel(Rule rule, BackwardTensors<T> hbm, Tensor<float> dQ_accum, int heads_at_once,
                    int launch_index, int launches) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  const OptionsProblem& problem = rule.problem;
  // The first keys, visible to the most queries under a causal mask, start first.
  const int heads = problem.B * problem.Hkv;
  const BlockOrder order(gridDim.x / heads, heads, heads_at_once);
  const int tile = order.tile / Shape::COLUMN_BLOCKS,
            col0 = order.tile % Shape::COLUMN_BLOCKS * Shape::COLS;
  int key0 = tile * Shape::Bc;
  if constexpr (Rule::RAGGED)
    key0 = rule.enter(tile);  // from here on problem is the sequence's own
  if (key0 / Shape::Bc % launches != launch_index) return;    // another launch's
  const int b = Rule::RAGGED ? 0 : order.head / problem.Hkv;  // a ragged batch has one element
  const int kv_head = order.head % problem.Hkv;

  const SharedTiles<T, Shape> smem;
  // The warp's first row of the tile. opaque(): else nvcc spills 8 bytes per thread at Width 64 in
  // a ragged batch with dropout.
  const int warp_row = opaque(threadIdx.x) / WARP * 16 * Shape::ROW_FRAGMENTS;
  const Slopes<T, Shape> slopes{smem.Pt_or_dSt().below(warp_row)};

  // [16 ROW_FRAGMENTS, COLS]; dK without the scale.
  Accumulators<Shape::ROW_FRAGMENTS, Shape::COLS / 8> dK(0.0f), dV(0.0f);

  const TilesInWindow<Shape> queries(problem, kv_head, key0);
  QueryTile at = queries.first(problem);

  // 1. K, V, and the first tiles of Q, dO; nothing where no query sees the keys, whose gradients
  // are 0.
  if (queries.iterations > 0) {
    load_async<Shape::THREADS, Shape::Bc>(smem.K, keys_of(rule, hbm.K).head(b, kv_head), key0);
    load_async<Shape::THREADS, Shape::Bc>(smem.V, keys_of(rule, hbm.V).head(b, kv_head), key0);
    load_queries_of<Shape>(rule, smem, 0, hbm, b, at);
  }

  for (int iteration = 0; iteration < queries.iterations; ++iteration) {
    cp_async_wait_all();
    // Read after write: the tiles of all threads have landed.
    // Write after read: no warp still reads the previous ones, nor dS^T.
    __syncthreads();
    if (iteration + 1 < queries.iterations)
      load_queries_of<Shape>(rule, smem, (iteration + 1) % 2, hbm, b, queries.after(problem, at));
    const auto Q = smem.Q(iteration % 2), dO = smem.dO(iteration % 2);
    const QueryStats<> stats = smem.stats(iteration % 2);

    // 2. P^T, and dV.
    // Transposed: [16 ROW_FRAGMENTS, Br].
    Accumulators<Shape::ROW_FRAGMENTS, Shape::QUERY_FRAGMENTS> St(0.0f), dPt(0.0f);
    add_product(St, smem.K.left(warp_row), Q.transposed());  // (8.11)
    // Write after read: the barrier at the top also lets the slopes overwrite the previous dS^T.
    rule.template apply</*Transposed=*/true>(St, b * problem.H + at.h, at.query0, key0 + warp_row,
                                             slopes);
    recompute_P(St, stats, rule.late_scale, rule.subtract_first());
    auto& Pt = St;  // in the same registers
    mark_dropped(rule, Pt, b * problem.H + at.h, at.query0, key0 + warp_row);
    add_product(dV, rounded<T>(drop_weights(rule, Pt)), dO.right(col0));  // (8.14), (9.12)

    // 3. dS^T, and dK.
    add_product(dPt, smem.V.left(warp_row), dO.transposed());  // (8.12)
    drop_gradients(rule, dPt, Pt);                             // (9.13); Pt loses its marks
    softmax_backward(dPt, Pt, stats);
    auto& dSt = dPt;
    // No barrier: each lane reads the slopes that it wrote itself, and then store() puts dS^T in
    // their place.
    if (problem.softcap != 0.0f) slopes.multiply_into(dSt);
    store(smem.Pt_or_dSt().below(warp_row), dSt);
    add_product(dK, rounded<T>(dSt), Q.right(col0));  // (8.15)

    // 4. dQ, by all warps.
    // Read after write: dS^T of all warps. The barrier at the top of the loop separates it from the
    // next tile's dS^T.
    __syncthreads();
    // opaque(): else nvcc spills 4 bytes per thread at Width 64 in a ragged batch.
    add_to_dQ<Shape>(dQ_accum.head(b, at.h), row_of(rule, at.query0), smem.Pt_or_dSt(), smem.K,
                     col0, opaque(threadIdx.x));
    if (iteration + 1 < queries.iterations) at = queries.after(problem, at);
  }
  // Write after read: the gradients are staged in the tiles of V and K, which all warps have
  // finished reading.
  __syncthreads();
  dK.each([&](float& x, int) { x *= problem.scale; });
  // kv_head again, which no register keeps through the loop.
  const int of_group = problem.kv_head(at.h);
  write_rows(keys_of(rule, hbm.dV).head(b, of_group), key0 + warp_row, dV, smem.V.below(warp_row),
             col0);
  write_rows(keys_of(rule, hbm.dK).head(b, of_group), key0 + warp_row, dK, smem.K.below(warp_row),
             col0);
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const FullProblem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const int kv_heads = p.B * p.Hkv;
    with_rule_of(a, blocks_for(p.Nk, Shape::Bc), [&]<class Rule>(Rule rule, unsigned tiles) {
      BackwardTensors<T> hbm;
      if constexpr (Rule::RAGGED) {
        hbm = prepare_ragged<T, Shape::Width>(a, dQ_accum, rule);
      } else {
        hbm = prepare<T, Shape::Width>(a, &dQ_accum);
      }
      const unsigned blocks = tiles * Shape::COLUMN_BLOCKS;  // of a head
      for (int index = 0; index < a.launches; ++index) {
        launch("backward_options",
               {dim3(blocks * static_cast<unsigned>(kv_heads)), dim3(Shape::THREADS),
                Shape::SHARED_ELEMENTS * sizeof(T)},
               backward_kernel<T, Shape, Rule>, rule, hbm, view<float>(dQ_accum),
               heads_at_once_backward<Shape>(a, static_cast<int>(blocks)), index, a.launches);
      }
      if constexpr (Rule::RAGGED) {
        convert_ragged<T, Shape::Width>(a, dQ_accum, rule);
      } else {
        convert<T, Shape::Width>(a, dQ_accum);
      }
    });
  });
}

const Variant variant = [] {
  Variant step = plain_backward_step<five_products_shapes<BackwardShape>, /*SumsInHbm=*/true>(
      "options_backward", "biases, any scale, a window, a softcap, dropout; ragged batches");
  step.workspace = options_workspace;
  step.takes = general_problem | usual_options;
  step.by_launches = true;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::backward_more_options
