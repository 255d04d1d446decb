// 08 Tensor cores, Hopper forward, step 6: tall tiles, which three warpgroups share.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   P = 2^(c S - c m)        with c = scale log2 e         [Br, Bc]                    (8.2)
//   l = l + rowsum P                                                                   (8.3)
//   O = O + P V_j                                          [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 5: a tile of Q has three times 64 rows, one warpgroup each. Each byte of K and V
// serves more queries, and more warpgroups have a product or a softmax ready at any time. It
// follows that
// - tiles of keys are narrower, so that S leaves registers for the third warpgroup, and the rings
//   have three stages;
// - a warpgroup skips tiles that none of its rows sees, which are a good part of a tall tile under
//   a causal mask or at the end;
// - what only the epilogue needs is computed there: opaque() of common/machine/ptx.cuh stops the
//   compiler from computing it before the loop, where it would occupy registers.
//
// Grid: Tr*B*H. Block: consumer warpgroups, then one for the producer. A consumer owns 64 rows of S
// and O, each of its warps 16. HBM: Q once, K and V once per tile of Q that sees them, O and L
// once.
// Shapes: d a multiple of 8, padded with zeros to 64, 80, 96, 128 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/hopper_forward/shapes.hpp"
#include "08_tensor_cores/parts/panels_forward.cuh"

namespace flash::tensor_cores::hopper_forward_6 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Stages>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  static constexpr int STAGES = Stages;  // of the rings of K and V
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread: together no more than at launch. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : 160;
  template <class T>
  using Shared = ForwardShared<T, Width, Br, Bc, STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

constexpr int BACKOFF_TILES = 8;  // that take the maximum at once after one that was recomputed

/// One thread: loads Q, K and V for a tile of Q, each tile as soon as its buffer is empty.
template <class T, class Shape>
__device__ void produce(Shared<T, Shape>& shared, const Maps& maps, const Work<Shape>& work) {
  if (work.visible_tiles == 0) return;
  mbarrier_arrive_expect_tx(shared.full_Q[0], shared.Q[0].BYTES);
  shared.Q[0].load(maps.Q, shared.full_Q[0], work.query0, work.h, work.b);
  PipelineState<Shape::STAGES> KV_ring;
  for (int j = work.visible_tiles - 1; j >= 0; --j, KV_ring.next()) {
    const int stage = KV_ring.stage(), key0 = j * Shape::Bc;
    // Write after read: all consumers have read the previous K of this stage.
    wait_empty(shared.empty_K[stage], KV_ring.parity());
    mbarrier_arrive_expect_tx(shared.full_K[stage], shared.K[stage].BYTES);
    shared.K[stage].load(maps.K, shared.full_K[stage], key0, work.kv_head, work.b);
    // Write after read: all consumers have read the previous V of this stage.
    wait_empty(shared.empty_V[stage], KV_ring.parity());
    mbarrier_arrive_expect_tx(shared.full_V[stage], shared.V[stage].BYTES);
    shared.V[stage].load(maps.V, shared.full_V[stage], key0, work.kv_head, work.b);
  }
}

/// A consumer warpgroup's rows of a tile of Q. The matrices are variables of consume(): as members
/// they would make one object, which nvcc takes apart so late that each tile computes the addresses
/// of Q again.
template <class T, class Shape>
struct QueryRows {
  Shared<T, Shape>& shared;
  const Problem& problem;
  int warp_query0;  // the warp's first
  PanelTile<T, Shape::Br, Shape::Width>& Q_tile;
  Accumulators<1, Shape::KEY_FRAGMENTS>& S;
  InRegisters<T, 1, Shape::Bc / 16>& P;
  Accumulators<1, Shape::COL_FRAGMENTS>& O;
  Rows<2>&m, &l;
  PanelRows<T, Shape::Br, Shape::Width> Q = Q_tile.below(warpgroup() * WARPGROUP_ROWS);
  float scale_log2 = problem.scale * LOG2_E;  // c

  // Each warp decides for itself how S of tile j becomes P. lazy_end begins as the number of tiles
  // without a mask in the warp's rows, and only falls.
  //   exact   j >= lazy_end               mask, maximum; O and l are rescaled
  //   lazy    j < lazy_end, P fits        m stays, nothing is rescaled
  //   repair  j < lazy_end, P too large   S is gone: multiply again with mma.sync, then exact, as
  //                                       for BACKOFF_TILES more tiles
  int lazy_end = problem.visible_keys(warp_query0) / Shape::Bc;

  /// (8.1)  S = Q K^T starts.
  __device__ void issue_S(PipelineState<Shape::STAGES> at) {
    // Read after write: K has landed.
    wait_full(shared.full_K[at.stage()], at.parity());
    // Write after read: P of the previous tile, in the registers of S, has been packed.
    wgmma_fence();
    issue_product<T, Shape::Width / 16>(S, Q.k_major(), shared.K[at.stage()].k_major(),
                                        /*add=*/false);
    wgmma_commit();
  }

  /// (8.4)  O += P V starts.
  __device__ void issue_PV(PipelineState<Shape::STAGES> at) {
    // Read after write: V has landed.
    wait_full(shared.full_V[at.stage()], at.parity());
    // Read after write: O has been rescaled and P packed.
    wgmma_fence();
    issue_product<T, Shape::Bc / 16>(O, P, shared.V[at.stage()].mn_major(), /*add=*/true);
    wgmma_commit();
  }

  /// O += P V ends, and V is released.
  __device__ void finish_PV(PipelineState<Shape::STAGES> at) {
    // Read after write: O is complete.
    // Write after read: this warp's part of the product has read P and V.
    wgmma_wait<0>(registers(O));
    release(shared.empty_V[at.stage()]);
  }

  /// (8.2), (8.3)  S becomes P with the current m. Returns whether P fits and l includes it.
  __device__ bool try_lazy() {
    Rows<2> scaled_m = m;
    scaled_m.each([&](float& x, int) { x *= scale_log2; });
    S.each([&](float& s, int r) { s = exp2_approx(scale_log2 * s - scaled_m[r]); });
    const auto sum = lane_sum(S);
    // NaN passes: recomputing would not help.
    const bool fits = in_all_rows(sum, [](float x) { return !(x > MAX_LANE_SUM); });
    if (fits) l = l + sum;
    return fits;
  }

  /// (8.1)  S = Q K^T again, of this warp's rows.
  __device__ void repair(int stage, int j) {
    S.each([](float& s, int) { s = 0.0f; });
    const auto Q_rows = Q_tile.below(threadIdx.x / WARP * 16);
    add_product(S, Q_rows.left(), shared.K[stage].transposed());
    lazy_end = j - BACKOFF_TILES;
  }

  /// (6.2), (8.2)  S of tile j becomes P with the true maximum. Returns the factor that rescales O.
  __device__ Rows<2> exact(int j) {
    mask(problem, S, warp_query0, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2);
    l = alpha * l + lane_sum(S);
    // If a row has no maximum yet, or c m is large, the next tile, j - 1, takes the maximum, too.
    const bool may_stay = in_all_rows(m, [&](float x) { return fabsf(scale_log2 * x) <= LARGE; });
    if (!may_stay) lazy_end = min(lazy_end, j - 1);
    return alpha;
  }
};

/// A consumer warpgroup: its rows of a tile of Q.
template <class T, class Shape>
__device__ void consume(Shared<T, Shape>& shared, const Problem& problem, const Maps& maps,
                        const Tensor<float>& L_all, const Work<Shape>& work) {
  // In each warp: S is [16, Bc], after the softmax P before rounding; O is [16, Width], not
  // normalised; l is of this lane's columns only.
  Accumulators<1, Shape::KEY_FRAGMENTS> S;
  InRegisters<T, 1, Shape::Bc / 16> P;
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<2> m(-INFINITY), l(0.0f);
  const int first = work.query0 + static_cast<int>(threadIdx.x) / WARP * 16;
  QueryRows<T, Shape> rows{shared, problem, first, shared.Q[0], S, P, O, m, l};
  const int own_tiles = work.tiles_visible_to(problem, work.query0 + rows.Q.row0, WARPGROUP_ROWS);

  // Read after write: Q has landed.
  // Write after write: even a warpgroup without a visible tile waits, as it stages O in Q's place.
  if (work.visible_tiles > 0) wait_full(shared.full_Q[0], 0);
  PipelineState<Shape::STAGES> KV_ring;
  // Tiles that only other warpgroups see are released unread: skip() of parts/panels_forward.cuh.
  for (int j = work.visible_tiles - 1; j >= own_tiles; --j, KV_ring.next()) skip(shared, KV_ring);
  if (own_tiles > 0) {
    // 1. S of the last tile, and P. O is still 0: nothing to rescale.
    rows.issue_S(KV_ring);
    // Read after write: S is complete.
    // Write after read: this warp's part of the product has read K.
    wgmma_wait<0>(registers(S));
    release(shared.empty_K[KV_ring.stage()]);
    rows.exact(own_tiles - 1);
    P = InRegisters<T, 1, Shape::Bc / 16>(S);
    for (int j = own_tiles - 2; j >= 0; --j) {
      // 2. S = Q K_j^T and O += P V_(j+1) start.
      const auto previous = KV_ring;
      KV_ring.next();
      rows.issue_S(KV_ring);
      rows.issue_PV(previous);

      // 3. P with the current m, while the previous tile's P V is in flight.
      // Read after write: S is complete, O may not be.
      wgmma_wait<1>(registers(S));
      const bool is_lazy = j < rows.lazy_end;
      const bool P_is_final = is_lazy && rows.try_lazy();
      rows.finish_PV(previous);

      // 4. P with the true maximum.
      if (!P_is_final) {
        if (is_lazy) rows.repair(KV_ring.stage(), j);  // rare
        O.scale_rows(rows.exact(j));
      }
      // Write after read: this warp will not read K_j again.
      release(shared.empty_K[KV_ring.stage()]);
      P = InRegisters<T, 1, Shape::Bc / 16>(S);
    }
    // 5. O += P V_0.
    rows.issue_PV(KV_ring);
    rows.finish_PV(KV_ring);
  }
  // Write after read: the products of all four warps have read Q; O is staged in its buffer.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  const int warp_row = opaque(threadIdx.x) / WARP * 16, head = opaque(work.head);
  write_by_tma(O, m, l, problem.scale, maps.O, L_all, head / problem.H, head % problem.H,
               work.query0 + warp_row, shared.Q[0].below(warp_row));  // (8.5)
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, const __grid_constant__ Maps maps, Tensor<float> L_all,
                   Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  if (threadIdx.x == 0) shared.initialize();
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  const Work<Shape> work(problem, schedule, blockIdx.x);
  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    // One thread.
    if (threadIdx.x / WARP == 4 * Shape::CONSUMERS && elect_one()) produce<T>(shared, maps, work);
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume<T>(shared, problem, maps, L_all, work);
  }
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    const auto blocks = static_cast<unsigned>(schedule.end);
    launch("tensor_tall", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, Problem(a.problem), maps_of<Shape>(a), view<float>(a.L),
           schedule);
  });
}

const Variant variant = hopper_step<tall_shapes<ForwardShape>>(
    "tall", "three warpgroups share narrow tiles of keys, and skip what they do not see");

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_6
