// 08 Tensor cores, Hopper forward, step 1: copies by the Tensor Memory Accelerator (TMA).
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since forward/8_block_order.cuh: the TMA copies tiles, and mbarriers say what has landed.
// - One thread asks for a tile. The TMA computes all addresses, swizzles, and writes zeros beyond
//   the last row and column. In the same way it stores O.
// - It counts landed bytes on an mbarrier, and every thread waits on that one object, instead of
//   waiting for its own copies and then at a barrier for the other threads' copies (phases and
//   their parity: common/machine/hopper.cuh).
// - Tiles consist of panels of 64 columns (parts/panels.cuh). A width need only be a multiple of
//   16, so 80 is available.
//
// In iteration j:
//   thread 0    asks for K_(j+1) and V_(j+1)
//   the TMA     writes them to the other stage, and counts their bytes on its full_K and full_V
//   all warps   wait for full_K: S = Q K_j^T, softmax; wait for full_V: O += P V_j; then a barrier,
//               so that the next request overwrites nothing that is still read
//
// Grid: Tr*B*H. Block: warps; each owns 16 ROW_FRAGMENTS rows of S and O, 4 lanes share a row.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.
// Shapes: d a multiple of 8, padded with zeros to 64, 80, 96, 128 or 256. Needs sm_90 or newer.
//
// Map of this folder: after ../forward, steps 1 to 7 in their order; 7 is the fastest. shapes.hpp
// has their tile sizes. more/ has ping_pong, a side branch of step 4, options, for biases, any
// scale and options, and decode, for few tiles of queries. In ../parts
//   panels.cuh           first: tiles as the TMA writes them and wgmma reads them, rings, registers
//   panels_forward.cuh   a block's Work, the epilogue by TMA, what later steps add
//   accumulators.cuh, softmax.cuh, mask.cuh, epilogue.cuh   as in ../forward
//   lazy_softmax.cuh     from step 5 on
//   launch.cuh           last: host code; which devices take a step
// common/machine/hopper.cuh and wgmma.cuh have the instructions.
#pragma once

#include "08_tensor_cores/hopper_forward/shapes.hpp"
#include "08_tensor_cores/parts/panels_forward.cuh"

namespace flash::tensor_cores::hopper_forward_1 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;                       // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;  // per SM (occupancy); they share its registers
  static constexpr bool Q_STAYS = Width / 16 * ROW_FRAGMENTS * 4 <= 32;  // in registers
  template <class T>
  struct Shared {  // the memory of a block: tiles, then mbarriers
    PanelTile<T, Br, Width> Q;
    PanelTile<T, Bc, Width> K[2], V[2];
    Mbarrier full_Q, full_K[2], full_V[2];
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 16 == 0,
                "whole fragments");
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
    forward_kernel(Problem problem, const __grid_constant__ Maps maps, Tensor<float> L_all,
                   Schedule schedule) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  const Work<Shape> work(problem, schedule, blockIdx.x);  // a tile of Q, and the keys that it sees
  auto& shared = shared_of_block<T, Shape>();
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first
  const float scale_log2 = problem.scale * LOG2_E;                      // c

  // In each warp: O, not normalised, is [16 ROW_FRAGMENTS, Width]; l is of this lane's columns.
  Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS> O(0.0f);
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
  // Read after write: Q has landed. Without a visible tile it was not copied, and nobody uses
  // what the operand below then holds.
  if (work.visible_tiles > 0) wait_full(shared.full_Q, 0);

  const auto Q = operand_of_Q<Shape>(shared.Q.below(warp_row));
  for (int j = 0; j < work.visible_tiles; ++j) {
    // 2. The prefetch of the next tiles starts.
    // Write after read: no warp still reads K_(j-1), V_(j-1). (At j = 0 there are none.)
    __syncthreads();
    if (threadIdx.x == 0 && j + 1 < work.visible_tiles) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S(0.0f);  // [16 ROW_FRAGMENTS, Bc]
    const int stage = j % 2, parity = j / 2 % 2;  // a stage has one phase per two tiles
    // Read after write: K_j has landed.
    wait_full(shared.full_K[stage], parity);
    add_product(S, Q, shared.K[stage].transposed());  // (8.1)
    mask(S, problem, work.query0 + warp_row, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2);                            // (8.2)  S becomes P
    l = alpha * l + lane_sum(S);
    O.scale_rows(alpha);

    // 4. O += P V.
    const InRegisters<T, Shape::ROW_FRAGMENTS, Shape::Bc / 16> P(S);  // V is on its way
    // Read after write: V_j has landed.
    wait_full(shared.full_V[stage], parity);
    add_product(O, P, shared.V[stage].right());  // (6.4)
  }
  // Write after read: all lanes have read Q. O is staged in its buffer, in rows of this warp alone.
  // (ldmatrix is warp-wide but orders no accesses; to the simulator it is one access of all lanes.)
  __syncwarp();
  write_by_tma(O, m, l, problem.scale, maps.O, L_all, work.b, work.h, work.query0 + warp_row,
               shared.Q.below(warp_row));  // (8.5)
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    const auto blocks = static_cast<unsigned>(schedule.end);
    launch("tensor_tma", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, Problem(a.problem),
           maps_of<Shape>(a, 16 * Shape::ROW_FRAGMENTS), view<float>(a.L), schedule);
  });
}

inline std::string refuse_before_hopper(const Problem&, const DeviceLimits& limits) {
  return limits.sm >= 90
             ? ""
             : "it uses the TMA, which needs compute capability 9.0 or newer" + here_it_is(limits);
}

const Variant variant = [] {
  Variant step = hopper_step<tma_shapes<ForwardShape>>(
      "tma", "the TMA copies tiles, mbarriers say what has landed; products as before");
  step.refuse_on = refuse_before_hopper;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_1
