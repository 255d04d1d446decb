// 08 Tensor cores, Hopper forward, step 6: tall tiles, which three warpgroups share.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   P = 2^(c S - c m)        with c = scale log2 e         [Br, Bc]                    (8.2)
//   l = l + rowsum P                                                                   (8.3)
//   O = O + P V_j                                          [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 5: a tile of Q has three times 64 rows, one warpgroup each. Each byte of K and V serves more queries, and more
// warpgroups have a product or a softmax ready at any time. It follows that
// - tiles of keys are narrower, so that S leaves registers for the third warpgroup, and the rings have three stages;
// - a warpgroup skips tiles that none of its rows sees, which are a good part of a tall tile under a causal mask or at the end.
//
// Registers are so scarce that a bias has kernels of its own (SCALE_FIRST), and that what only the epilogue needs is computed
// there, from the head: opaque() of common/machine/ptx.cuh stops the compiler from computing it before the loop.
//
// Grid: Tr*B*H. Block: consumer warpgroups with 64 rows of S and O each, 16 per warp; then a warpgroup for the producer.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.  Workspace: padded copies if d % 8 != 0.
// Shapes: all; d is padded with zeros to 64, 80, 96, 128 or 256, with a bias to 64, 128 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/parts/launch_hopper.cuh"
#include "08_tensor_cores/parts/panels.cuh"

namespace flash::tensor_cores::hopper_forward_6 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Stages, bool ScaleFirst = false>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns of S and of O
  static constexpr int STAGES = Stages;                                    // of the rings of K and V
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread. The total may not exceed the launch's: 65536 / THREADS each, rounded down to a multiple of 8.
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;  // with one consumer, all threads may have 255
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : CONSUMERS == 3 ? 160 : 112;
  using Storage = SharedStorage<Width, Br, Bc, STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Storage) / 2;  // of 16 bits
  static constexpr bool SCALE_FIRST = ScaleFirst;              // as with a bias: see ScoreRule
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && CONSUMERS <= 4 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS || registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

constexpr int BACKOFF_TILES = 8;  // that take the maximum at once after a tile that had to be recomputed

/// One thread: loads Q, K and V for a tile of Q, each tile as soon as its buffer is empty.
template <class T, class Shape>
__device__ void produce(const Shared<T, Shape>& shared, const Maps& maps, const Work<Shape>& work) {
  if (work.visible_tiles == 0) return;
  auto& storage = shared.storage;
  mbarrier_arrive_expect_tx(storage.full_Q[0], shared.Q().BYTES);
  shared.Q().load(maps.Q, storage.full_Q[0], work.query0, work.h, work.b);
  PipelineState<Shape::STAGES> KV_state;
  for (int j = work.visible_tiles - 1; j >= 0; --j, KV_state.next()) {
    const int stage = KV_state.stage(), parity = KV_state.parity();
    // Write after read: all consumers have read the previous K of this stage.
    wait_empty(storage.empty_K[stage], parity);
    mbarrier_arrive_expect_tx(storage.full_K[stage], shared.K(stage).BYTES);
    shared.K(stage).load(maps.K, storage.full_K[stage], j * Shape::Bc, work.kv_head, work.b);
    // Write after read: all consumers have read the previous V of this stage.
    wait_empty(storage.empty_V[stage], parity);
    mbarrier_arrive_expect_tx(storage.full_V[stage], shared.V(stage).BYTES);
    shared.V(stage).load(maps.V, storage.full_V[stage], j * Shape::Bc, work.kv_head, work.b);
  }
}

/// A consumer warpgroup: its rows of a tile of Q.
template <class T, class Shape>
__device__ void consume(const Shared<T, Shape>& shared, const ScoreRule& rule, const Maps& maps, const Tensor<T>& O_all,
                        const Tensor<float>& L_all, const Work<Shape>& work) {
  auto& storage = shared.storage;
  const auto Q_smem = shared.Q();
  const int warp_row = threadIdx.x / WARP * 16;                    // the warp's first row of the tile
  const auto Q_rows = Q_smem.below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  const float scale_log2 = rule.late_scale * LOG2_E;               // c
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);                   // [16, Width] in each warp, not normalised
  Rows<2> m(-INFINITY), l(0.0f);                                   // l: over this lane's columns only

  // Each warp decides for itself how tile j becomes P. lazy_end begins as the number of tiles without a mask in
  // the warp's rows, and only falls.
  //   exact   j >= lazy_end               mask, maximum; O and l are rescaled
  //   lazy    j < lazy_end, P fits        m stays, nothing is rescaled
  //   repair  j < lazy_end, P too large   S is gone: multiply again with mma.sync, then exact, as for BACKOFF_TILES more tiles
  int lazy_end = Shape::SCALE_FIRST ? 0 : rule.problem.visible_keys(work.query0 + warp_row) / Shape::Bc;

  // (6.2), (8.2)  S becomes P with the true maximum. Returns the factor by which the caller has to rescale O.
  const auto exact_softmax = [&](Accumulators<1, Shape::KEY_FRAGMENTS>& S, int j) {
    if constexpr (Shape::SCALE_FIRST) {
      rule.apply(S, work.head, work.query0 + warp_row, j * Shape::Bc);
    } else {
      rule.mask(S, work.query0 + warp_row, j * Shape::Bc);
    }
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2, Shape::SCALE_FIRST);
    l = alpha * l + lane_sum(S);
    // If a row has no maximum yet, or c m is large, the next tile, j - 1, takes the maximum at once as well.
    if (!in_all_rows(m, [&](float x) { return fabsf(scale_log2 * x) <= LARGE; })) lazy_end = min(lazy_end, j - 1);
    return alpha;
  };

  // Read after write: Q has landed.
  // Write after write: even a warpgroup without a visible tile waits, since it stages O where Q lands.
  if (work.visible_tiles > 0) wait_full(storage.full_Q[0], 0);
  PipelineState<Shape::STAGES> KV_state;

  // Tiles that only other warpgroups see are released unread: skip() of parts/panels.cuh.
  const int warpgroup_visible_tiles = work.tiles_visible_to(rule.problem, work.query0 + Q_rows.row0, WARPGROUP_ROWS);
  for (int j = work.visible_tiles - 1; j >= warpgroup_visible_tiles; --j, KV_state.next()) skip(storage, KV_state);
  if (warpgroup_visible_tiles > 0) {
    // 1. S of the last tile, and P.
    Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc] in each warp
    auto& P = S;                              // the same registers, after the softmax
    // Read after write: K has landed.
    wait_full(storage.full_K[KV_state.stage()], KV_state.parity());
    wgmma_fence();  // hands the registers of S to wgmma
    issue_product<T, Q_rows.DEPTH>(S, Q_rows.k_major(), shared.K(KV_state.stage()).k_major(), /*add=*/false);  // (8.1)
    wgmma_commit();
    // Read after write: S is complete.
    // Write after read: this warp's part of the product has read K.
    wgmma_wait<0>(registers(S));
    release(storage.empty_K[KV_state.stage()]);
    exact_softmax(S, warpgroup_visible_tiles - 1);  // O is still 0: nothing to rescale
    InRegisters<T, 1, Shape::Bc / 16> P_reg(P);
    for (int j = warpgroup_visible_tiles - 2; j >= 0; --j) {
      const int stage_V = KV_state.stage(), parity_V = KV_state.parity();  // of tile j + 1
      KV_state.next();
      const int stage_K = KV_state.stage(), parity_K = KV_state.parity();  // of tile j

      // 2. S = Q K_j^T and O += P V_(j+1) are issued.
      // Read after write: K_j has landed.
      wait_full(storage.full_K[stage_K], parity_K);
      // Write after read: P of the previous tile, in the registers of S, has been packed.
      wgmma_fence();
      issue_product<T, Q_rows.DEPTH>(S, Q_rows.k_major(), shared.K(stage_K).k_major(), /*add=*/false);  // (8.1)
      wgmma_commit();
      // Read after write: V_(j+1) has landed.
      wait_full(storage.full_V[stage_V], parity_V);
      // Read after write: O has been rescaled and P packed.
      wgmma_fence();
      issue_product<T, Shape::Bc / 16>(O, P_reg, shared.V(stage_V).mn_major(), /*add=*/true);  // (8.4)
      wgmma_commit();

      // 3. Lazy: P with the current m, while the previous tile's P V is in flight.
      // Read after write: S is complete, O may not be.
      wgmma_wait<1>(registers(S));
      const bool lazy = j < lazy_end;
      bool P_is_final = false;
      if (lazy) {
        Rows<2> scaled_m = m;
        scaled_m.each([&](float& x, int) { x *= scale_log2; });
        S.each([&](float& s, int r) { s = exp2_approx(scale_log2 * s - scaled_m[r]); });  // (8.2)
        const auto sum = lane_sum(P);
        P_is_final = in_all_rows(sum, [](float x) { return !(x > MAX_LANE_SUM); });  // NaN passes: recomputing would not help
        if (P_is_final) l = l + sum;                                                 // (8.3)
      }
      // Read after write: O is complete.
      // Write after read: this warp's part of the product has read P_reg and V.
      wgmma_wait<0>(registers(O));
      release(storage.empty_V[stage_V]);

      // 4. Exact: P with the true maximum. After a lazy attempt S is overwritten, and this warp recomputes it alone (rare).
      if (!P_is_final) {
        if (lazy) {  // repair
          S.each([](float& s, int) { s = 0.0f; });
          add_product(S, Q_smem.below(warp_row).left(), shared.K(stage_K).transposed());  // (8.1)
          lazy_end = j - BACKOFF_TILES;
        }
        O.scale_rows(exact_softmax(S, j));
      }
      // Write after read: this warp will not read K_j again.
      release(storage.empty_K[stage_K]);
      P_reg = InRegisters<T, 1, Shape::Bc / 16>(P);
    }

    // 5. O += P V_0.
    // Read after write: V_0 has landed.
    wait_full(storage.full_V[KV_state.stage()], KV_state.parity());
    // Read after write: O has been rescaled and P packed.
    wgmma_fence();
    issue_product<T, Shape::Bc / 16>(O, P_reg, shared.V(KV_state.stage()).mn_major(), /*add=*/true);  // (8.4)
    wgmma_commit();
    // Read after write: O is complete.
    // Write after read: this warp's part of the product has read V.
    wgmma_wait<0>(registers(O));
    release(storage.empty_V[KV_state.stage()]);
  }
  // Write after read: the products of all four warps have read Q; O is staged in its buffer.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  // (8.5)  opaque(): what is computed from the head is computed here, not kept in registers during the loop.
  write_by_tma(O, m, l, rule, maps.O, O_all, L_all, opaque(work.head), work.query0 + warp_row, Q_smem.below(warp_row));
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(ScoreRule rule, const __grid_constant__ Maps maps, Tensor<T> O_all, Tensor<float> L_all, Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma on this architecture: never launched
  const Shared<T, Shape> shared;
  if (threadIdx.x == 0) shared.initialize();
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more block-wide barriers.
  __syncthreads();

  const Work<Shape> work(rule.problem, schedule, blockIdx.x);
  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    if (threadIdx.x / WARP == 4 * Shape::CONSUMERS && elect_one()) produce(shared, maps, work);  // one thread
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume(shared, rule, maps, O_all, L_all, work);
  }
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    launch("tensor_tall", {dim3(static_cast<unsigned>(schedule.end)), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, score_rule(a), maps_of<T, Shape>(a), view<T>(a.O), view<float>(a.L), schedule);
  });
}

template <int Width, int Br, int Bc, int Stages, bool ScaleFirst = false>
constexpr CompiledShape compiled(const char* why) {
  using Shape = ForwardShape<Width, Br, Bc, Stages, ScaleFirst>;
  return compiled_shape<Shape>(why, start<Shape>);
}

// Width, Br, Bc, stages.
constexpr CompiledShape shapes[] = {
    compiled<64, 192, 96, 3>("three warpgroups: with Bc = 96 a fourth would spill"),
    compiled<64, 64, 64, 2>("little shared memory"),
    compiled<80, 192, 64, 3>("three warpgroups"),
    compiled<80, 64, 64, 2>("little shared memory"),
    compiled<96, 192, 64, 3>("three warpgroups"),
    compiled<96, 64, 64, 2>("little shared memory"),
    compiled<128, 192, 64, 3>("three warpgroups"),
    compiled<128, 64, 64, 2>("little shared memory"),
    compiled<256, 128, 64, 2>("two warpgroups: registers hold no more of O"),
    compiled<256, 64, 32, 2>("little shared memory"),
};
constexpr CompiledShape scale_first_shapes[] = {
    compiled<64, 128, 64, 2, true>("a bias takes registers"),  compiled<64, 64, 64, 2, true>("little shared memory"),
    compiled<128, 128, 64, 2, true>("a bias takes registers"), compiled<128, 64, 64, 2, true>("little shared memory"),
    compiled<256, 128, 32, 2, true>("a bias takes registers"), compiled<256, 64, 32, 2, true>("little shared memory"),
};

const Variant variant = hopper_step<shapes, scale_first_shapes>(
    "tall", "three warpgroups share narrow tiles of keys, and skip what they do not see");

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_6
