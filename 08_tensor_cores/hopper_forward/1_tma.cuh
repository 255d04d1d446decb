// 08 Tensor cores, Hopper forward, step 1: copies by the Tensor Memory Accelerator (TMA), tracked by mbarriers.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since forward/7_tuned.cuh:
// - One thread asks the TMA for a tile. The TMA computes all addresses, swizzles, and writes zeros beyond the last row and
//   column; the other threads copy nothing. In the same way the TMA stores O.
// - The TMA counts landed bytes on an mbarrier, and every thread waits on that one object, instead of waiting for its own
//   copies and then at a barrier for the other threads' copies (phases and their parity: common/machine/hopper.cuh). K and V
//   have an mbarrier each, so that Q K^T starts before V has landed. A barrier remains, for write after read.
// - P is packed before the wait for V (InRegisters), while V is still on its way.
// - Tiles consist of panels of 64 columns (parts/panels.cuh). A width need only be a multiple of 16, so 80 is available.
// - Storage, work and epilogue, which later steps share, are in parts/panels.cuh and parts/launch_hopper.cuh.
//
// Grid: Tr*B*H. Block: warps; a warp owns 16 ROW_FRAGMENTS rows of S and O; a row is shared by the 4 lanes of a quad.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.  Workspace: padded copies if d % 8 != 0.
// Shapes: all; d is padded with zeros to 64, 80, 96, 128 or 256. Needs the TMA: sm_90 or newer.
#pragma once

#include "08_tensor_cores/parts/launch_hopper.cuh"
#include "08_tensor_cores/parts/panels.cuh"

namespace flash::tensor_cores::hopper_forward_1 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;                       // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns of S and of O
  static constexpr int STAGES = 2;                                         // tiles each of K and V in shared memory
  // CONSUMERS, in warpgroups, sets the arrivals of empty_K and empty_V; step 3 is the first to wait for those mbarriers.
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP, CONSUMERS = (THREADS + WARPGROUP - 1) / WARPGROUP;
  static constexpr int BLOCKS = Blocks;                                  // per SM (occupancy); they share its registers
  static constexpr bool Q_STAYS = Width / 16 * ROW_FRAGMENTS * 4 <= 32;  // registers for a warp's rows of Q
  using Storage = SharedStorage<Width, Br, Bc, STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Storage) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole fragments");
};

/// The warp's rows of Q as left operand, in registers or in shared memory.
template <class Shape, class Tile>
__device__ auto operand_of_Q(const Tile& Q_rows) {
  if constexpr (Shape::Q_STAYS) {
    return InRegisters<typename Tile::T, Shape::ROW_FRAGMENTS, Tile::DEPTH>(Q_rows.left());
  } else {
    return Q_rows.left();
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(ScoreRule rule, const __grid_constant__ Maps maps, Tensor<T> O_all, Tensor<float> L_all, Schedule schedule) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // this architecture is too old: never launched
  const Shared<T, Shape> shared;
  auto& storage = shared.storage;
  const Work<Shape> work(rule.problem, schedule, blockIdx.x);
  const auto Q_smem = shared.Q();
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row of the tile
  const float scale_log2 = rule.late_scale * LOG2_E;                    // c
  Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS> O(0.0f);  // [16 ROW_FRAGMENTS, Width] in each warp, not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f);                                // l: over this lane's columns only

  const auto load_tile = [&](int j) {  // called by one thread
    mbarrier_arrive_expect_tx(storage.full_K[j % 2], shared.K(0).BYTES);
    shared.K(j % 2).load(maps.K, storage.full_K[j % 2], j * Shape::Bc, work.kv_head, work.b);
    mbarrier_arrive_expect_tx(storage.full_V[j % 2], shared.V(0).BYTES);
    shared.V(j % 2).load(maps.V, storage.full_V[j % 2], j * Shape::Bc, work.kv_head, work.b);
  };

  // 1. Q and the first tiles of K and V. A phase of a full mbarrier ends after one arrival and the bytes that it announced.
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
  // Read after write: Q has landed. Without a visible tile it was not copied, and no product uses it.
  if (work.visible_tiles > 0) wait_full(storage.full_Q[0], 0);

  const auto Q = operand_of_Q<Shape>(Q_smem.below(warp_row));
  for (int j = 0; j < work.visible_tiles; ++j) {
    // 2. The prefetch of the next tiles starts.
    // Write after read: no warp still reads K_(j-1), V_(j-1).
    __syncthreads();
    if (threadIdx.x == 0 && j + 1 < work.visible_tiles) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S(0.0f);  // [16 ROW_FRAGMENTS, Bc] in each warp
    const int parity = j / 2 % 2;                                      // each stage has one phase per two tiles
    // Read after write: K_j has landed.
    wait_full(storage.full_K[j % 2], parity);
    add_product(S, Q, shared.K(j % 2).transposed());  // (8.1)
    rule.apply(S, work.head, work.query0 + warp_row, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2, rule.scale_first);          // (8.2)
    auto& P = S;                                               // in the same registers
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    // 4. O += P V.
    const InRegisters<T, Shape::ROW_FRAGMENTS, Shape::Bc / 16> P_reg(P);
    // Read after write: V_j has landed.
    wait_full(storage.full_V[j % 2], parity);
    add_product(O, P_reg, shared.V(j % 2).right());  // (6.4)
  }
  // Write after read: all lanes have read Q; O is staged in the warp's rows of its buffer, which no other warp reads.
  __syncwarp();
  write_by_tma(O, m, l, rule, maps.O, O_all, L_all, work.head, work.query0 + warp_row, Q_smem.below(warp_row));  // (8.5)
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    launch("tensor_tma", {dim3(static_cast<unsigned>(schedule.end)), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, score_rule(a), maps_of<T, Shape>(a, 16 * Shape::ROW_FRAGMENTS), view<T>(a.O),
           view<float>(a.L), schedule);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why) {
  return compiled_shape<ForwardShape<Sizes...>>(why, start<ForwardShape<Sizes...>>);
}

// Width, Br, Bc, row fragments per warp, blocks per SM.
constexpr CompiledShape shapes[] = {
    compiled<64, 128, 64, 2, 2>("32 rows a warp, Q in registers"),
    compiled<64, 64, 64, 1, 3>("twice as many blocks, three on an SM"),
    compiled<80, 128, 64, 2, 2>("32 rows a warp"),
    compiled<80, 64, 32, 1, 3>("twice as many blocks, little shared memory"),
    compiled<96, 128, 64, 2, 2>("32 rows a warp"),
    compiled<96, 64, 32, 1, 3>("twice as many blocks, little shared memory"),
    compiled<128, 128, 48, 2, 2>("32 rows a warp"),
    compiled<128, 64, 32, 1, 2>("twice as many blocks, little shared memory"),
    compiled<256, 128, 64, 1, 1>("16 rows a warp: more of O than that has no room; 8 warps share K and V"),
    compiled<256, 64, 32, 1, 2>("twice as many blocks"),
    compiled<256, 32, 16, 1, 4>("little shared memory"),
};

Variant tma_step() {
  Variant step = forward_step<shapes>("tma", "the TMA copies tiles, mbarriers say what has landed; products as before");
  step.refuse_on = refuse_before_hopper;
  return step;
}
const Variant variant = tma_step();

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_1
