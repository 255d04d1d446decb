// 08 Tensor cores, Hopper forward, step 8: a window and a softcap (chapter 09).
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   P = 2^(c S - c m)        with c = scale log2 e         [Br, Bc]                    (8.2)
//   l = l + rowsum P                                                                   (8.3)
//   O = O + P V_j                                          [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 7:
// - Only tiles in the window are loaded. A warpgroup skips those on either side of its own, and masks at both edges.
// - A softcap turns complete products into tanh(scale S / cap). The cap then takes the place of the scale in c and in L.
//
// Grid: at most one block per SM. Block: consumer warpgroups with 64 rows of S and O each, 16 per warp; then the producer.
// HBM: Q once, K and V once per tile of Q whose window they are in, O and L written once. Workspace: as step 7.
// Shapes: all; d is padded with zeros to 64, 96, 128 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/parts/launch_hopper.cuh"
#include "08_tensor_cores/parts/panels.cuh"

namespace flash::tensor_cores::hopper_forward_8 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Stages>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns of S and of O
  static constexpr int Q_STAGES = Width <= 128 ? 2 : 1;                    // tiles of Q
  static constexpr int STAGES = Stages;                                    // of the rings of K and V
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  // Registers per thread. The total may not exceed the launch's: 65536 / THREADS each, rounded down to a multiple of 8.
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 24 : 32, CONSUMER_REGISTERS = CONSUMERS == 2 ? 240 : 160;
  struct Storage : SharedStorage<Width, Br, Bc, STAGES, Q_STAGES> {
    Mbarrier empty_Q[Q_STAGES];
    int work_id[Q_STAGES];  // which work Q belongs to
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Storage) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % WARPGROUP_ROWS == 0 && (CONSUMERS == 2 || CONSUMERS == 3) && Bc % 16 == 0 && Width % 16 == 0,
                "whole products");
  static_assert(registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

constexpr int BACKOFF_TILES = 8;  // that take the maximum at once after a tile that had to be recomputed

/// A tile of queries of a head, and the tiles of keys that it visits.
template <class Shape>
struct WindowedWork : Work<Shape> {
  struct Tiles {
    int begin, end;
  } tiles;  // from the first that one of the rows sees to before `end`. Work's visible_tiles knows no window

  __device__ WindowedWork(const OptionsProblem& p, const Schedule& schedule, int work_id)
      : Work<Shape>(p, schedule, work_id), tiles(tiles_seen_by(p, this->query0, Shape::Br)) {}

  /// By the `rows` rows from `first` on; rows beyond the last query see none.
  __device__ static Tiles tiles_seen_by(const OptionsProblem& p, int first, int rows) {
    const int end_key = p.end_key(min(first + rows, p.Nq) - 1), end = (end_key + Shape::Bc - 1) / Shape::Bc;
    return {first < p.Nq ? p.first_key(first) / Shape::Bc : end, end};
  }
};

/// One thread: loads Q, K and V for a tile of Q, each tile as soon as its buffer is empty.
template <class T, class Shape>
__device__ void produce(const Shared<T, Shape>& shared, const Maps& maps, const WindowedWork<Shape>& work, int work_id,
                        PipelineState<Shape::Q_STAGES>& Q_state, PipelineState<Shape::STAGES>& KV_state) {
  auto& storage = shared.storage;
  const int Q_stage = Q_state.stage();
  // Write after read: the TMA has read the O staged in this buffer.
  // Write after read: the consumers have read the previous index.
  wait_empty(storage.empty_Q[Q_stage], Q_state.parity());
  storage.work_id[Q_stage] = work_id;
  const bool any = work.tiles.end > work.tiles.begin;
  mbarrier_arrive_expect_tx(storage.full_Q[Q_stage], any ? shared.Q().BYTES : 0);
  if (any) shared.Q(Q_stage).load(maps.Q, storage.full_Q[Q_stage], work.query0, work.h, work.b);
  Q_state.next();
  for (int j = work.tiles.end - 1; j >= work.tiles.begin; --j, KV_state.next()) {
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
__device__ void consume(const Shared<T, Shape>& shared, const OptionsRule& rule, const Maps& maps, const Tensor<T>& O_all,
                        const Tensor<float>& L_all, const WindowedWork<Shape>& work, PipelineState<Shape::Q_STAGES>& Q_state,
                        PipelineState<Shape::STAGES>& KV_state) {
  auto& storage = shared.storage;
  const auto Q_smem = shared.Q(Q_state.stage());
  const int warp_row = threadIdx.x / WARP * 16;                    // the warp's first row of the tile
  const auto Q_rows = Q_smem.below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  const float scale_log2 = rule.late_scale * LOG2_E;               // c
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);                   // [16, Width] in each warp, not normalised
  Rows<2> m(-INFINITY), l(0.0f);                                   // l: over this lane's columns only

  // Each warp decides for itself how tile j becomes P, as in step 7. Tiles before lazy_begin or from lazy_end on may need a
  // mask in the warp's rows, and are exact.
  int lazy_end = rule.problem.end_key(work.query0 + warp_row) / Shape::Bc;
  const int lazy_begin = (rule.problem.first_key(work.query0 + warp_row + 15) + Shape::Bc - 1) / Shape::Bc;
  const bool capped = rule.problem.softcap != 0.0f;

  // (6.2), (8.2)  S becomes P with the true maximum. Returns the factor by which the caller has to rescale O.
  const auto exact_softmax = [&](Accumulators<1, Shape::KEY_FRAGMENTS>& S, int j) {
    rule.mask(S, work.query0 + warp_row, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);
    exponentiate(S, m, scale_log2, /*subtract_first=*/false);
    l = alpha * l + lane_sum(S);
    // If a row has no maximum yet, or c m is large, the next tile, j - 1, takes the maximum at once as well.
    if (!in_all_rows(m, [&](float x) { return fabsf(scale_log2 * x) <= LARGE; })) lazy_end = min(lazy_end, j - 1);
    return alpha;
  };

  // Tiles that only other warpgroups see are released unread: skip() of parts/panels.cuh.
  const auto own = work.tiles_seen_by(rule.problem, work.query0 + Q_rows.row0, WARPGROUP_ROWS);
  for (int j = work.tiles.end - 1; j >= own.end; --j, KV_state.next()) skip(storage, KV_state);
  if (own.begin < own.end) {
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
    if (capped) rule.cap(S, Nowhere{});  // (9.7)
    exact_softmax(S, own.end - 1);       // O is still 0: nothing to rescale
    InRegisters<T, 1, Shape::Bc / 16> P_reg(P);
    for (int j = own.end - 2; j >= own.begin; --j) {
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
      if (capped) rule.cap(S, Nowhere{});  // (9.7)
      const bool lazy = lazy_begin <= j && j < lazy_end;
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
          if (capped) rule.cap(S, Nowhere{});                                             // (9.7)
          lazy_end = j - BACKOFF_TILES;
        }
        O.scale_rows(exact_softmax(S, j));
      }
      // Write after read: this warp will not read K_j again.
      release(storage.empty_K[stage_K]);
      P_reg = InRegisters<T, 1, Shape::Bc / 16>(P);
    }

    // 5. O += P V of the last tile.
    // Read after write: V has landed.
    wait_full(storage.full_V[KV_state.stage()], KV_state.parity());
    // Read after write: O has been rescaled and P packed.
    wgmma_fence();
    issue_product<T, Shape::Bc / 16>(O, P_reg, shared.V(KV_state.stage()).mn_major(), /*add=*/true);  // (8.4)
    wgmma_commit();
    // Read after write: O is complete.
    // Write after read: this warp's part of the product has read V.
    wgmma_wait<0>(registers(O));
    release(storage.empty_V[KV_state.stage()]);
    KV_state.next();
  }
  for (int j = own.begin - 1; j >= work.tiles.begin; --j, KV_state.next()) skip(storage, KV_state);
  // Write after read: the products of all four warps have read Q; O is staged in its buffer.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  // (8.5)  opaque(): what is computed from the head is computed here, not kept in registers during the loop.
  write_by_tma(O, m, l, rule, maps.O, O_all, L_all, opaque(work.head), work.query0 + warp_row, Q_smem.below(warp_row));
  // Write after read: the TMA has read this warp's rows of O; the next Q may land there.
  release(storage.empty_Q[Q_state.stage()]);
  Q_state.next();
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(OptionsRule rule, const __grid_constant__ Maps maps, Tensor<T> O_all, Tensor<float> L_all,
                   Tensor<int> counter, Schedule schedule) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma on this architecture: never launched
  const Shared<T, Shape> shared;
  auto& storage = shared.storage;
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& empty : storage.empty_Q) init_for_warps(empty, Shape::CONSUMERS * 4);
    shared.initialize();
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more block-wide barriers.
  __syncthreads();

  PipelineState<Shape::Q_STAGES> Q_state;
  PipelineState<Shape::STAGES> KV_state;
  if (warpgroup() == Shape::CONSUMERS) {
    setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    if (threadIdx.x / WARP != 4 * Shape::CONSUMERS || !elect_one()) return;
    const auto next_ticket = counter.head(0, 0).address(0, 0);
    for (int work_id = blockIdx.x; work_id < schedule.end;) {
      produce(shared, maps, WindowedWork<Shape>(rule.problem, schedule, work_id), work_id, Q_state, KV_state);
      const int ticket = atomicAdd(next_ticket, 1);  // drawn earlier, the work would wait here while another block is idle
      if (ticket == schedule.end - 1) atomicSub(next_ticket, schedule.end);  // the last of all: reset for the next launch
      work_id = static_cast<int>(gridDim.x) + ticket;
    }
    // Write after read: the consumers have read the previous index.
    wait_empty(storage.empty_Q[Q_state.stage()], Q_state.parity());
    storage.work_id[Q_state.stage()] = schedule.end;  // no work left
    // Read after write: the consumers see that index.
    mbarrier_arrive(storage.full_Q[Q_state.stage()]);
  } else {
    setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    while (true) {
      // Read after write: Q has landed, and the producer has stored the index of the work.
      wait_full(storage.full_Q[Q_state.stage()], Q_state.parity());
      const int work_id = __shfl_sync(ALL_LANES, storage.work_id[Q_state.stage()], 0);  // uniform: see warpgroup()
      if (work_id >= schedule.end) break;
      consume(shared, rule, maps, O_all, L_all, WindowedWork<Shape>(rule.problem, schedule, work_id), Q_state, KV_state);
    }
  }
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Schedule schedule = schedule_of<Shape>(a.problem);
    const auto blocks = static_cast<unsigned>(std::min(schedule.end, a.limits.multiprocessors));
    launch("tensor_options_hopper", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, score_rule<OptionsRule>(a), maps_of<T, Shape>(a), view<T>(a.O), view<float>(a.L),
           view<int>(a.workspace("counter")), schedule);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<ForwardShape<Sizes...>>(why, start<ForwardShape<Sizes...>>, speed);
}

// Width, Br, Bc, stages: those of step 7 that have registers to spare, and their speeds.
constexpr CompiledShape shapes[] = {
    compiled<64, 192, 96, 3>("three warpgroups; a fourth would leave too few registers"),
    compiled<64, 128, 128, 2>("two warpgroups", 0.93),
    compiled<96, 192, 64, 3>("three warpgroups"),
    compiled<128, 192, 64, 3>("three warpgroups"),
    compiled<128, 128, 128, 2>("two warpgroups", 0.89),
    compiled<256, 128, 64, 2>("registers hold no more of O"),
};

const Variant variant = [] {
  Variant step = hopper_step<shapes>("options_hopper", "the loop begins at the window's first key; a softcap before P");
  step.takes = plain_problem | Features::window | Features::softcap;
  step.fastest = [](const FullProblem& p, Pass pass) { return pass == Pass::forward && !p.is_plain(); };
  step.only_if_fastest = true;
  step.workspace = workspace_with_counter;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_8
