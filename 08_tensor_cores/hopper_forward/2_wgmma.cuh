// 08 Tensor cores, Hopper forward, step 2: wgmma multiplies for four warps at once.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 1:
// - A warpgroup (four warps) multiplies 64 rows by a whole tile. wgmma reads Q, K and V directly
//   from shared memory: no ldmatrix, no registers for operands. Only P is read from registers,
//   since its accumulators have the left operand's layout, as in forward step 4.
// - A product runs asynchronously. issue_S() and issue_PV() (parts/panels_forward.cuh) start it,
//   between a wgmma_fence(), which orders earlier accesses to its registers, and a wgmma_commit(),
//   which closes the group that wgmma_wait() waits for. After the wait the result may be read and
//   operands may be overwritten.
// - Tiles are sized for warpgroups, one block per SM.
//
// Grid, HBM, shapes: as step 1, but needs sm_90a.
// Block: warpgroups; each owns 64 rows of S and O, a warp 16, 4 lanes share a row.
#pragma once

#include "08_tensor_cores/hopper_forward/shapes.hpp"
#include "08_tensor_cores/parts/panels_forward.cuh"

namespace flash::tensor_cores::hopper_forward_2 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  static constexpr int THREADS = Br / WARPGROUP_ROWS * WARPGROUP;
  template <class T>
  struct Shared {  // the memory of a block: tiles, then mbarriers
    PanelTile<T, Br, Width> Q;
    PanelTile<T, Bc, Width> K[2], V[2];
    Mbarrier full_Q, full_K[2], full_V[2];
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, const __grid_constant__ Maps maps, Tensor<float> L_all,
                   Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();    // no wgmma here: never launched
  const Work<Shape> work(problem, schedule, blockIdx.x);  // a tile of Q, and the keys that it sees
  auto& shared = shared_of_block<T, Shape>();
  const int warp_row = threadIdx.x / WARP * 16;                 // the warp's first
  const auto Q = shared.Q.below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  const float scale_log2 = problem.scale * LOG2_E;              // c

  // In each warp: O, not normalised, is [16, Width]; l is of this lane's columns.
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<O.ROWS> m(-INFINITY), l(0.0f);

  // Called by one thread. A phase of an mbarrier ends after its arrival and the bytes it announced.
  const auto load_tile = [&](int j) {
    mbarrier_arrive_expect_tx(shared.full_K[j % 2], shared.K[0].BYTES);
    shared.K[j % 2].load(maps.K, shared.full_K[j % 2], j * Shape::Bc, work.kv_head, work.b);
    mbarrier_arrive_expect_tx(shared.full_V[j % 2], shared.V[0].BYTES);
    shared.V[j % 2].load(maps.V, shared.full_V[j % 2], j * Shape::Bc, work.kv_head, work.b);
  };

  // 1. Q and the first tiles of K and V.
  if (threadIdx.x == 0) {
    mbarrier_init(shared.full_Q, 1);
    for (int stage = 0; stage < 2; ++stage) {
      mbarrier_init(shared.full_K[stage], 1);
      mbarrier_init(shared.full_V[stage], 1);
    }
    // Read after write: the TMA sees the initialised mbarriers.
    fence_mbarrier_init();
    if (work.visible_tiles > 0) {
      mbarrier_arrive_expect_tx(shared.full_Q, shared.Q.BYTES);
      shared.Q.load(maps.Q, shared.full_Q, work.query0, work.h, work.b);
      load_tile(0);
    }
  }
  // Read after write: all threads see the initialised mbarriers.
  __syncthreads();
  // Read after write: Q has landed.
  if (work.visible_tiles > 0) wait_full(shared.full_Q, 0);

  for (int j = 0; j < work.visible_tiles; ++j) {
    // 2. The prefetch of the next tiles starts.
    // Write after read: no warp still reads K_(j-1), V_(j-1). (At j = 0 there are none.)
    __syncthreads();
    if (threadIdx.x == 0 && j + 1 < work.visible_tiles) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<1, Shape::KEY_FRAGMENTS> S;      // [16, Bc]
    const int stage = j % 2, parity = j / 2 % 2;  // a stage has one phase per two tiles
    // Read after write: K_j has landed.
    wait_full(shared.full_K[stage], parity);
    issue_S(S, Q, shared.K[stage]);  // (8.1)
    // Read after write: S is complete.
    wgmma_wait<0>(registers(S));
    mask(S, problem, work.query0 + warp_row, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2);                            // (8.2)  S becomes P
    l = alpha * l + lane_sum(S);
    O.scale_rows(alpha);

    // 4. O += P V.
    const InRegisters<T, 1, Shape::Bc / 16> P(S);
    // Read after write: V_j has landed.
    wait_full(shared.full_V[stage], parity);
    issue_PV(O, P, shared.V[stage]);  // (6.4)
    // Read after write: O is complete.
    // Write after read: this warp's share of the product has read P and V_j.
    wgmma_wait<0>(registers(O));
  }
  // Write after read: the products of all four warps have read Q; O is staged in its buffer. (PTX
  // does not promise that a warp's share reads the warp's rows alone.)
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  write_by_tma(O, m, l, problem.scale, maps.O, L_all, work.b, work.h, work.query0 + warp_row,
               shared.Q.below(warp_row));  // (8.5)
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    const auto blocks = static_cast<unsigned>(schedule.end);
    launch("tensor_wgmma", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, Problem(a.problem), maps_of<Shape>(a), view<float>(a.L),
           schedule);
  });
}

const Variant variant = hopper_step<wgmma_shapes<ForwardShape>>(
    "wgmma", "products of four warps at once, which read shared memory themselves");

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_2
