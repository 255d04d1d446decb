// 08 Tensor cores, Hopper forward, step 7: persistent blocks, which draw their work from a counter.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   P = 2^(c S - c m)        with c = scale log2 e         [Br, Bc]                    (8.2)
//   l = l + rowsum P                                                                   (8.3)
//   O = O + P V_j                                          [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 6: there is one block per SM, whose producer draws a ticket from a global counter
// after each tile of Q. The ticket says what work comes next, longest first, and its index,
// work_id, is passed on with Q. Rings outlive a tile of Q: the next K and V, and Q if it has two
// buffers, are loaded while the consumers finish the tile. At d = 64 a tile of Q has 256 rows, for
// four consumers.
//
// Grid: one block per SM. Block: as step 3. HBM, shapes: as step 1, but needs sm_90a.
// Workspace: the counter, zero before and after, which launches that run at the same time must not
// share.
#pragma once

#include "08_tensor_cores/hopper_forward/shapes.hpp"
#include "08_tensor_cores/parts/lazy_softmax.cuh"
#include "08_tensor_cores/parts/panels_forward.cuh"

namespace flash::tensor_cores::hopper_forward_7 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Stages>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  static constexpr int Q_STAGES = Width <= 128 ? 2 : 1;                    // tiles of Q
  static constexpr int STAGES = Stages;  // of the rings of K and V
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread: together no more than at launch. With one consumer all may have 255.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : CONSUMERS == 3 ? 160 : 112;
  template <class T>
  struct Shared : ForwardShared<T, Width, Br, Bc, STAGES, Q_STAGES> {
    Mbarrier empty_Q[Q_STAGES];
    int work_id[Q_STAGES];  // which work Q belongs to
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

/// One thread: loads Q, K and V for a tile of Q, each tile as soon as its buffer is empty.
template <class T, class Shape>
__device__ void produce(Shared<T, Shape>& shared, const Maps& maps, const Work<Shape>& work,
                        int work_id, PipelineState<Shape::Q_STAGES>& Q_ring,
                        PipelineState<Shape::STAGES>& KV_ring) {
  Mbarrier& full_Q = shared.full_Q[Q_ring.stage()];
  const bool sees_keys = work.visible_tiles > 0;
  // Write after read: the TMA has read the O staged here, and the consumers the previous index.
  wait_empty(shared.empty_Q[Q_ring.stage()], Q_ring.parity());
  shared.work_id[Q_ring.stage()] = work_id;
  mbarrier_arrive_expect_tx(full_Q, sees_keys ? shared.Q[0].BYTES : 0);
  if (sees_keys) shared.Q[Q_ring.stage()].load(maps.Q, full_Q, work.query0, work.h, work.b);
  Q_ring.next();
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
                        const Tensor<float>& L_all, const Work<Shape>& work,
                        PanelTile<T, Shape::Br, Shape::Width>& Q_tile,
                        PipelineState<Shape::STAGES>& KV_ring) {
  const auto Q = Q_tile.below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  // In each warp: O, not normalised, is [16, Width]; l is of this lane's columns.
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<O.ROWS> m(-INFINITY), l(0.0f);
  Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc]
  InRegisters<T, 1, Shape::Bc / 16> P;      // of the previous tile while S is computed
  // opaque(): computed per tile of Q. A register that keeps it through all tiles would be spilled.
  LazySoftmax<Shape> softmax{m, l, problem,
                             work.query0 + static_cast<int>(opaque(threadIdx.x)) / WARP * 16};
  const int own_tiles = work.tiles_visible_to(problem, work.query0 + Q.row0, WARPGROUP_ROWS);

  // Tiles that only other warpgroups see are released unread: skip() of parts/panels_forward.cuh.
  for (int j = work.visible_tiles - 1; j >= own_tiles; --j, KV_ring.next()) skip(shared, KV_ring);
  if (own_tiles > 0) {
    // 1. S of the last tile, and P. O is still 0: nothing to rescale.
    // Read after write: K has landed.
    wait_full(shared.full_K[KV_ring.stage()], KV_ring.parity());
    issue_S(S, Q, shared.K[KV_ring.stage()]);  // (8.1)
    // Read after write: S is complete.
    // Write after read: this warp's share of the product has read K.
    wgmma_wait<0>(registers(S));
    release(shared.empty_K[KV_ring.stage()]);
    softmax.exact(S, own_tiles - 1);
    P = InRegisters<T, 1, Shape::Bc / 16>(S);
    for (int j = own_tiles - 2; j >= 0; --j) {
      // 2. S = Q K_j^T and O += P V_(j+1) start.
      const auto previous = KV_ring;
      KV_ring.next();
      const int stage = KV_ring.stage(), parity = KV_ring.parity();
      // Read after write: K_j has landed.
      wait_full(shared.full_K[stage], parity);
      issue_S(S, Q, shared.K[stage]);  // (8.1)
      // Read after write: V_(j+1) has landed.
      wait_full(shared.full_V[previous.stage()], previous.parity());
      issue_PV(O, P, shared.V[previous.stage()]);  // (8.4)

      // 3. P with the current m, while the previous tile's P V is in flight.
      // Read after write: S is complete, O may not be.
      wgmma_wait<1>(registers(S));
      const bool is_lazy = j < softmax.lazy_end;
      const bool P_is_final = is_lazy && softmax.try_lazy(S);
      // Read after write: O is complete.
      // Write after read: this warp's share of the product has read P and V_(j+1).
      wgmma_wait<0>(registers(O));
      release(shared.empty_V[previous.stage()]);

      // 4. P with the true maximum.
      if (!P_is_final) {
        if (is_lazy)  // rare
          softmax.repair(S, Q_tile.below(threadIdx.x / WARP * 16), shared.K[stage], j);
        O.scale_rows(softmax.exact(S, j));
      }
      // Write after read: this warp will not read K_j again.
      release(shared.empty_K[stage]);
      P = InRegisters<T, 1, Shape::Bc / 16>(S);
    }
    // 5. O += P V_0.
    // Read after write: V_0 has landed.
    wait_full(shared.full_V[KV_ring.stage()], KV_ring.parity());
    issue_PV(O, P, shared.V[KV_ring.stage()]);
    // Read after write: O is complete.
    wgmma_wait<0>(registers(O));
    release(shared.empty_V[KV_ring.stage()]);
    KV_ring.next();
  }
  // Write after read: the products and repair() of all four warps have read Q; O is staged there.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  const int warp_row = opaque(threadIdx.x) / WARP * 16, head = opaque(work.head);
  write_by_tma(O, m, l, problem.scale, maps.O, L_all, head / problem.H, head % problem.H,
               work.query0 + warp_row, Q_tile.below(warp_row));  // (8.5)
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, const __grid_constant__ Maps maps, Tensor<float> L_all,
                   Tensor<int> counter, Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& empty : shared.empty_Q) init_for_warps(empty, Shape::CONSUMERS * 4);
    shared.initialize();
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  PipelineState<Shape::Q_STAGES> Q_ring;
  PipelineState<Shape::STAGES> KV_ring;
  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    if (threadIdx.x / WARP != 4 * Shape::CONSUMERS || !elect_one()) return;  // one thread goes on
    const auto next_ticket = counter.head(0, 0).address(0, 0);
    for (int work_id = blockIdx.x; work_id < schedule.end;) {
      produce<T>(shared, maps, Work<Shape>(problem, schedule, work_id), work_id, Q_ring, KV_ring);
      // Drawn earlier, the work would wait here while another block is idle.
      const int ticket = atomicAdd(next_ticket, 1);
      // The last ticket of all: the counter is 0 again for the next launch.
      if (ticket == schedule.end - 1) atomicSub(next_ticket, schedule.end);
      work_id = static_cast<int>(gridDim.x) + ticket;
    }
    // Write after read: the consumers have read the previous index.
    wait_empty(shared.empty_Q[Q_ring.stage()], Q_ring.parity());
    shared.work_id[Q_ring.stage()] = schedule.end;  // no work left
    // Read after write: the consumers see that index.
    mbarrier_arrive(shared.full_Q[Q_ring.stage()]);
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    for (;; Q_ring.next()) {
      // Read after write: Q has landed, and the producer has stored the index of the work.
      wait_full(shared.full_Q[Q_ring.stage()], Q_ring.parity());
      // The shuffle makes the index uniform: see warpgroup().
      const int work_id = __shfl_sync(ALL_LANES, shared.work_id[Q_ring.stage()], 0);
      if (work_id >= schedule.end) break;
      consume<T>(shared, problem, maps, L_all, Work<Shape>(problem, schedule, work_id),
                 shared.Q[Q_ring.stage()], KV_ring);
      // Write after read: this warp's rows of O have been read; the next Q may land there.
      release(shared.empty_Q[Q_ring.stage()]);
    }
  }
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    const auto blocks = static_cast<unsigned>(std::min(schedule.end, a.limits.multiprocessors));
    launch("tensor_scheduled",
           {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, Problem(a.problem), maps_of<Shape>(a), view<float>(a.L),
           view<int>(a.workspace("counter")), schedule);
  });
}

const Variant variant = [] {
  Variant step = hopper_step<scheduled_shapes<ForwardShape>>(
      "scheduled", "persistent blocks draw work from a counter, and load the next Q ahead");
  step.fastest = [](const FullProblem&, Pass pass) { return pass == Pass::forward; };
  step.workspace = work_counter;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_7
