// 08 Tensor cores, Hopper forward, step 3: one thread loads, whole warpgroups compute.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 2, with the same tiles:
// - Warp specialisation: the producer, one thread of an additional warpgroup, loads tile after
//   tile. The other warpgroups, the consumers, compute.
// - Buffers have a second mbarrier, `empty`, which makes them rings (parts/panels.cuh). No barrier
//   of the whole block is left in the loop, so that one warpgroup can compute its softmax while
//   another multiplies.
// - setmaxnreg moves the registers of the producer's warpgroup to the consumers.
// - Tiles of keys go from the last to the first, as in forward/9_key_order.cuh.
//
// For each tile j, from the last down:
//   producer    waits for empty_K, asks for K_j; waits for empty_V, asks for V_j
//   the TMA     ends a phase of full_K, then of full_V, with the last byte of K_j and V_j
//   consumers   wait for full_K: S = Q K_j^T, release K to empty_K, softmax; wait for full_V:
//               O += P V_j, release V to empty_V
//
// Grid, HBM, shapes: as step 1, but needs sm_90a.
// Block: consumer warpgroups, each of which owns 64 rows of S and O, then one for the producer.
#pragma once

#include "08_tensor_cores/hopper_forward/shapes.hpp"
#include "08_tensor_cores/parts/panels_forward.cuh"

namespace flash::tensor_cores::hopper_forward_3 {
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

  // Read after write: Q has landed.
  if (work.visible_tiles > 0) wait_full(shared.full_Q[0], 0);
  PipelineState<Shape::STAGES> KV_ring;
  for (int j = work.visible_tiles - 1; j >= 0; --j, KV_ring.next()) {
    // 1. S = Q K^T, and the softmax of its rows.
    Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc]
    const int stage = KV_ring.stage(), parity = KV_ring.parity();
    // Read after write: K_j has landed.
    wait_full(shared.full_K[stage], parity);
    issue_S(S, Q, shared.K[stage]);  // (8.1)
    // Read after write: S is complete.
    // Write after read: this warp's share of the product has read K_j. The producer waits until all
    // consumer warps have released it.
    wgmma_wait<0>(registers(S));
    release(shared.empty_K[stage]);
    mask(S, problem, warp_query0, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2);                            // (8.2)  S becomes P
    l = alpha * l + lane_sum(S);
    O.scale_rows(alpha);

    // 2. O += P V.
    const InRegisters<T, 1, Shape::Bc / 16> P(S);
    // Read after write: V_j has landed.
    wait_full(shared.full_V[stage], parity);
    issue_PV(O, P, shared.V[stage]);  // (6.4)
    // Read after write: O is complete.
    // Write after read: this warp's share of the product has read P and V_j.
    wgmma_wait<0>(registers(O));
    release(shared.empty_V[stage]);
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
    launch("tensor_specialized",
           {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, Problem(a.problem), maps_of<Shape>(a), view<float>(a.L),
           schedule);
  });
}

const Variant variant = hopper_step<wgmma_shapes<ForwardShape>>(
    "specialized", "a producer warp fills rings of K and V; consumers get its registers");

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_3
