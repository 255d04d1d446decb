// 08 Tensor cores, Hopper forward, step 2: wgmma multiplies for four warps at once.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 1:
// - A warpgroup (four warps) multiplies 64 rows by a whole tile. wgmma reads Q, K and V directly from shared memory: no
//   ldmatrix, no registers for operands. Only P is read from registers, since its accumulators have the left operand's layout,
//   as in forward step 4.
// - A product runs asynchronously: issue_product() only starts it (parts/panels.cuh). wgmma_fence() before it orders earlier
//   accesses to its registers, wgmma_commit() closes the group that wgmma_wait() waits for; then the result may be read, and
//   operands may be overwritten.
// - Tiles are sized for warpgroups, one block per SM.
//
// Grid: Tr*B*H. Block: warpgroups; each owns 64 rows of S and O, a warp 16 of them; a row is shared by the 4 lanes of a quad.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.  Workspace: padded copies if d % 8 != 0.
// Shapes: all; d is padded with zeros to 64, 80, 96, 128 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/parts/launch_hopper.cuh"
#include "08_tensor_cores/parts/panels.cuh"

namespace flash::tensor_cores::hopper_forward_2 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns of S and of O
  static constexpr int STAGES = 2;                                         // tiles each of K and V in shared memory
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = CONSUMERS * WARPGROUP;
  using Storage = SharedStorage<Width, Br, Bc, STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Storage) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(ScoreRule rule, const __grid_constant__ Maps maps, Tensor<T> O_all, Tensor<float> L_all, Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma on this architecture: never launched
  const Shared<T, Shape> shared;
  auto& storage = shared.storage;
  const Work<Shape> work(rule.problem, schedule, blockIdx.x);
  const auto Q_smem = shared.Q();
  const int warp_row = threadIdx.x / WARP * 16;                    // the warp's first row of the tile
  const auto Q_rows = Q_smem.below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  const float scale_log2 = rule.late_scale * LOG2_E;               // c
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);                   // [16, Width] in each warp, not normalised
  Rows<2> m(-INFINITY), l(0.0f);                                   // l: over this lane's columns only

  const auto load_tile = [&](int j) {  // called by one thread
    mbarrier_arrive_expect_tx(storage.full_K[j % 2], shared.K(0).BYTES);
    shared.K(j % 2).load(maps.K, storage.full_K[j % 2], j * Shape::Bc, work.kv_head, work.b);
    mbarrier_arrive_expect_tx(storage.full_V[j % 2], shared.V(0).BYTES);
    shared.V(j % 2).load(maps.V, storage.full_V[j % 2], j * Shape::Bc, work.kv_head, work.b);
  };

  // 1. Q and the first tiles of K and V.
  if (threadIdx.x == 0) {
    shared.initialize();
    if (work.visible_tiles > 0) {
      mbarrier_arrive_expect_tx(storage.full_Q[0], shared.Q().BYTES);
      shared.Q().load(maps.Q, storage.full_Q[0], work.query0, work.h, work.b);
      load_tile(0);
    }
  }
  // Read after write: all threads see the initialised mbarriers.
  __syncthreads();
  // Read after write: Q has landed.
  if (work.visible_tiles > 0) wait_full(storage.full_Q[0], 0);

  for (int j = 0; j < work.visible_tiles; ++j) {
    // 2. The prefetch of the next tiles starts.
    const int parity = j / 2 % 2;  // each stage has one phase per two tiles
    // Write after read: no warp still reads K_(j-1), V_(j-1).
    __syncthreads();
    if (threadIdx.x == 0 && j + 1 < work.visible_tiles) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc] in each warp
    // Read after write: K_j has landed.
    wait_full(storage.full_K[j % 2], parity);
    // Write after read: P of the previous tile, in the registers of S, has been packed.
    wgmma_fence();
    issue_product<T, Q_rows.DEPTH>(S, Q_rows.k_major(), shared.K(j % 2).k_major(), /*add=*/false);  // (8.1)
    wgmma_commit();
    // Read after write: S is complete.
    wgmma_wait<0>(registers(S));
    rule.apply(S, work.head, work.query0 + warp_row, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2, rule.scale_first);          // (8.2)
    auto& P = S;                                               // in the same registers
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    // 4. O += P V.
    const InRegisters<T, 1, Shape::Bc / 16> P_reg(P);
    // Read after write: V_j has landed.
    wait_full(storage.full_V[j % 2], parity);
    // Read after write: O has been rescaled and P packed.
    wgmma_fence();
    issue_product<T, Shape::Bc / 16>(O, P_reg, shared.V(j % 2).mn_major(), /*add=*/true);  // (6.4)
    wgmma_commit();
    // Read after write: O is complete.
    // Write after read: this warp's part of the product has read V_j.
    wgmma_wait<0>(registers(O));
  }
  // Write after read: the products of all four warps have read Q; O is staged in its buffer.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  write_by_tma(O, m, l, rule, maps.O, O_all, L_all, work.head, work.query0 + warp_row, Q_smem.below(warp_row));  // (8.5)
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    launch("tensor_wgmma",
           {dim3(static_cast<unsigned>(schedule.end)), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, score_rule(a), maps_of<T, Shape>(a), view<T>(a.O), view<float>(a.L), schedule);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why) {
  return compiled_shape<ForwardShape<Sizes...>>(why, start<ForwardShape<Sizes...>>);
}

// Width, Br, Bc.
constexpr CompiledShape shapes[] = {
    compiled<64, 128, 128>("two warpgroups share K and V"),
    compiled<64, 64, 64>("twice as many blocks, little shared memory"),
    compiled<80, 128, 128>("two warpgroups share K and V"),
    compiled<80, 64, 64>("twice as many blocks, little shared memory"),
    compiled<96, 128, 128>("two warpgroups share K and V"),
    compiled<96, 64, 64>("twice as many blocks, little shared memory"),
    compiled<128, 128, 128>("two warpgroups share K and V"),
    compiled<128, 64, 64>("twice as many blocks, little shared memory"),
    compiled<256, 128, 64>("two warpgroups share K and V"),
    compiled<256, 64, 32>("twice as many blocks, little shared memory"),
};

const Variant variant = hopper_step<shapes>("wgmma", "products of four warps at once, which read shared memory themselves");

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_2
