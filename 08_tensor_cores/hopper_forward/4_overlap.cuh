// 08 Tensor cores, Hopper forward, step 4: two products in flight, S of the next tile and P V of
// this one.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 3, with the same tiles:
// - Q K^T of the next tile is issued before P V of the current one. While a warpgroup computes its
//   softmax, P V is still in flight: the tensor cores have work even when both warpgroups are in
//   their softmax.
// - A warpgroup is therefore at two positions of the rings at once. And O is rescaled only after
//   the previous tile's P V, which was computed with the old m.
//
// A consumer in iteration j:
//   wgmma in flight     meanwhile                         K ring              V ring
//   S_j, P V_(j+1)      waits for S_j                     reads K_j           reads V_(j+1)
//   P V_(j+1)           softmax of S_j, waits for V_j     K_j released        reads V_(j+1)
//   none                O rescaled, P_j packed            waits for K_(j-1)   V_(j+1) released
//
// Grid, HBM, shapes: as step 1, but needs sm_90a. Block: as step 3.
#pragma once

#include "08_tensor_cores/hopper_forward/shapes.hpp"
#include "08_tensor_cores/parts/panels_forward.cuh"

namespace flash::tensor_cores::hopper_forward_4 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  static constexpr int STAGES = 2;  // of the rings of K and V
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread: 24 + 2 * 240 = 504, the same total as at launch, 3 * 168. With one
  // consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  template <class T>
  using Shared = ForwardShared<T, Width, Br, Bc, STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

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

/// A consumer warpgroup: its rows of a tile of Q.
template <class T, class Shape>
__device__ void consume(Shared<T, Shape>& shared, const Problem& problem, const Maps& maps,
                        const Tensor<float>& L_all, const Work<Shape>& work) {
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first
  const int warp_query0 = work.query0 + warp_row;
  const auto Q = shared.Q[0].below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  const float scale_log2 = problem.scale * LOG2_E;                 // c

  // In each warp: O, not normalised, is [16, Width]; l is of this lane's columns.
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<O.ROWS> m(-INFINITY), l(0.0f);
  Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc]
  InRegisters<T, 1, Shape::Bc / 16> P;      // of the previous tile while S is computed

  // (6.2), (8.2)  S of tile j becomes P. Returns the factor by which O has to be rescaled.
  const auto softmax = [&](int j) {
    mask(S, problem, warp_query0, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2);
    l = alpha * l + lane_sum(S);
    return alpha;
  };

  if (work.visible_tiles > 0) {
    // 1. S of the last tile, and P. O is still 0: nothing to rescale.
    // Read after write: Q has landed.
    wait_full(shared.full_Q[0], 0);
    PipelineState<Shape::STAGES> KV_ring;
    // Read after write: the last K has landed, in stage 0.
    wait_full(shared.full_K[0], 0);
    issue_S(S, Q, shared.K[0]);  // (8.1)
    // Read after write: S is complete.
    // Write after read: this warp's share of the product has read K.
    wgmma_wait<0>(registers(S));
    release(shared.empty_K[0]);
    softmax(work.visible_tiles - 1);
    // Read after write: the last V has landed.
    wait_full(shared.full_V[0], 0);
    P = InRegisters<T, 1, Shape::Bc / 16>(S);
    for (int j = work.visible_tiles - 2; j >= 0; --j) {
      // 2. S = Q K_j^T and O += P V_(j+1) start.
      const auto previous = KV_ring;
      KV_ring.next();
      const int stage = KV_ring.stage(), parity = KV_ring.parity();
      // Read after write: K_j has landed.
      wait_full(shared.full_K[stage], parity);
      issue_S(S, Q, shared.K[stage]);              // (8.1)
      issue_PV(O, P, shared.V[previous.stage()]);  // (6.4)

      // 3. The softmax of S, while P V is in flight.
      // Read after write: S is complete, O may not be.
      // Write after read: this warp's share of the product has read K_j.
      wgmma_wait<1>(registers(S));
      release(shared.empty_K[stage]);
      const auto alpha = softmax(j);
      // Read after write: V_j has landed.
      // The order of instructions: the wait is a branch, and stands here because ptxas would
      // otherwise move the exponentials behind the wait for P V.
      wait_full(shared.full_V[stage], parity);
      // Read after write: O is complete.
      // Write after read: this warp's share of the product has read P and V_(j+1).
      wgmma_wait<0>(registers(O));
      release(shared.empty_V[previous.stage()]);
      O.scale_rows(alpha);
      P = InRegisters<T, 1, Shape::Bc / 16>(S);
    }
    // 4. O += P V_0.
    issue_PV(O, P, shared.V[KV_ring.stage()]);
    // Read after write: O is complete.
    wgmma_wait<0>(registers(O));
    release(shared.empty_V[KV_ring.stage()]);
  }
  // Write after read: the products of all four warps have read Q; O is staged in its buffer.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  write_by_tma(O, m, l, problem.scale, maps.O, L_all, work.b, work.h, warp_query0,
               shared.Q[0].below(warp_row));  // (8.5)
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
    launch("tensor_overlap",
           {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, Problem(a.problem), maps_of<Shape>(a), view<float>(a.L),
           schedule);
  });
}

const Variant variant = hopper_step<wgmma_shapes<ForwardShape>>(
    "overlap", "S of the next tile is issued before P V of this one");

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_4
