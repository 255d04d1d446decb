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
// - A product runs asynchronously: issue_product() only starts it (parts/panels.cuh). wgmma_fence()
//   before it orders earlier accesses to its registers, wgmma_commit() closes the group that
//   wgmma_wait() waits for; then the result may be read, and operands may be overwritten.
// - QueryRows has a method for what a warpgroup does with its rows, since later steps do it in
//   another order, and KV_ring is the buffer that a tile is in, with the phase of its mbarriers.
// - Tiles are sized for warpgroups, one block per SM.
//
// Grid: Tr*B*H. Block: warpgroups; each owns 64 rows of S and O, a warp 16, 4 lanes share a row.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.
// Shapes: d a multiple of 8, padded with zeros to 64, 80, 96, 128 or 256. Needs sm_90a.
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
  static constexpr int STAGES = 2;                                         // of K and V
  static constexpr int THREADS = Br / WARPGROUP_ROWS * WARPGROUP;
  template <class T>
  struct Shared {  // the memory of a block: tiles, then mbarriers
    PanelTile<T, Br, Width> Q;
    PanelTile<T, Bc, Width> K[STAGES], V[STAGES];
    Mbarrier full_Q, full_K[STAGES], full_V[STAGES];
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
};

/// A warpgroup's rows of a tile of Q. The matrices are variables of the kernel: as members they
/// would make one object, which nvcc takes apart so late that each tile computes the addresses of Q
/// again.
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

  /// (6.4)  O += P V starts.
  __device__ void issue_PV(PipelineState<Shape::STAGES> at) {
    // Read after write: V has landed.
    wait_full(shared.full_V[at.stage()], at.parity());
    // Read after write: O has been rescaled and P packed.
    wgmma_fence();
    issue_product<T, Shape::Bc / 16>(O, P, shared.V[at.stage()].mn_major(), /*add=*/true);
    wgmma_commit();
  }

  /// (6.2), (8.2)  S of tile j becomes P. Returns the factor by which O has to be rescaled.
  __device__ Rows<2> softmax(int j) {
    mask(problem, S, warp_query0, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2);
    l = alpha * l + lane_sum(S);
    return alpha;
  }
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, const __grid_constant__ Maps maps, Tensor<float> L_all,
                   Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();    // no wgmma here: never launched
  const Work<Shape> work(problem, schedule, blockIdx.x);  // a tile of Q, and the keys that it sees
  auto& shared = shared_of_block<T, Shape>();
  const int warp_row = threadIdx.x / WARP * 16;  // the warp's first
  // In each warp: S is [16, Bc], after the softmax P before rounding; O is [16, Width], not
  // normalised; l is of this lane's columns only.
  Accumulators<1, Shape::KEY_FRAGMENTS> S;
  InRegisters<T, 1, Shape::Bc / 16> P;
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<2> m(-INFINITY), l(0.0f);
  QueryRows<T, Shape> rows{shared, problem, work.query0 + warp_row, shared.Q, S, P, O, m, l};

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

  PipelineState<Shape::STAGES> KV_ring;
  for (int j = 0; j < work.visible_tiles; ++j, KV_ring.next()) {
    // 2. The prefetch of the next tiles starts.
    // Write after read: no warp still reads K_(j-1), V_(j-1).
    __syncthreads();
    if (threadIdx.x == 0 && j + 1 < work.visible_tiles) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    rows.issue_S(KV_ring);
    // Read after write: S is complete.
    wgmma_wait<0>(registers(S));
    O.scale_rows(rows.softmax(j));
    P = InRegisters<T, 1, Shape::Bc / 16>(S);

    // 4. O += P V.
    rows.issue_PV(KV_ring);
    // Read after write: O is complete.
    // Write after read: this warp's part of the product has read P and V.
    wgmma_wait<0>(registers(O));
  }
  // Write after read: the products of all four warps have read Q; O is staged in its buffer.
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
