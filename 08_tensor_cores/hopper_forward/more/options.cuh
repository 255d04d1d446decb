// 08 Tensor cores, Hopper forward: step 7 for every problem: a bias, any scale, and chapter 09's
// window, softcap and ragged batches. With wide heads.
//
// New since step 7, in the order of the code:
// - With a bias, or a scale that is no factor of the exponent, other kernels run (SCALE_FIRST).
//   They scale S first and take each tile's maximum. Their tiles are small, since a bias takes
//   registers.
// - Work has a rule (work_by_rule.cuh). In a ragged batch it is a tile of a sequence, from the
//   table. The tensor maps know only the whole batch, so a tile may reach into the next sequence:
//   its keys are masked there, and its values are multiplied by 0, so they have to be finite.
// - produce() loads only tiles in the window.
// - consume() skips tiles that none of its rows sees, and masks at both edges (lazy_begin).
// - After each product cap() turns it into tanh(scale S / cap), if there is a softcap, which then
//   takes the place of the scale in c and in L.
// - In a ragged batch threads store O, not the TMA.
//
// Grid, workspace: as step 7. Block: as step 3. HBM: as step 1, but only tiles in the window; bias.
// Shapes: d a multiple of 8, padded with zeros to 64, 96, 128, 160, 192 or 256, with SCALE_FIRST to
// 64, 128 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/hopper_forward/more/work_by_rule.cuh"

namespace flash::tensor_cores::hopper_forward_more_options {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Stages, bool ScaleFirst = false>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  // Tiles of Q. At 160 shared memory has room for two, which made it a tenth slower.
  static constexpr int Q_STAGES = Width <= 128 || Width == 192 ? 2 : 1;
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
  static constexpr bool SCALE_FIRST = ScaleFirst;  // see above

  static_assert(Br % WARPGROUP_ROWS == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole products");
  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

/// One thread: loads Q, K and V for a tile of Q, each tile as soon as its buffer is empty.
template <class T, class Shape, class Rule>
__device__ void produce(Shared<T, Shape>& shared, const Maps& maps,
                        const WindowedWork<Shape, Rule>& work, int work_id,
                        PipelineState<Shape::Q_STAGES>& Q_ring,
                        PipelineState<Shape::STAGES>& KV_ring) {
  int first_query = 0, first_key = 0;  // of the sequence
  if constexpr (Rule::RAGGED)
    first_query = work.rule.offset(0, 0), first_key = work.rule.offset(0, 1);
  Mbarrier& full_Q = shared.full_Q[Q_ring.stage()];
  const bool sees_keys = work.tiles.begin < work.tiles.end;
  // Write after read: the TMA has read the O staged here, and the consumers the previous index.
  wait_empty(shared.empty_Q[Q_ring.stage()], Q_ring.parity());
  shared.work_id[Q_ring.stage()] = work_id;
  mbarrier_arrive_expect_tx(full_Q, sees_keys ? shared.Q[0].BYTES : 0);
  if (sees_keys)
    shared.Q[Q_ring.stage()].load(maps.Q, full_Q, first_query + work.query0, work.h, work.b);
  Q_ring.next();
  for (int j = work.tiles.end - 1; j >= work.tiles.begin; --j, KV_ring.next()) {
    const int stage = KV_ring.stage(), key0 = first_key + j * Shape::Bc;
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
template <class T, class Shape, class Rule>
__device__ void consume(Shared<T, Shape>& shared, const Maps& maps, const Tensor<T>& O_all,
                        const Tensor<float>& L_all, const WindowedWork<Shape, Rule>& work,
                        PanelTile<T, Shape::Br, Shape::Width>& Q_tile,
                        PipelineState<Shape::STAGES>& KV_ring) {
  const Rule& rule = work.rule;
  const auto Q = Q_tile.below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  // In each warp: O, not normalised, is [16, Width]; l is of this lane's columns.
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<O.ROWS> m(-INFINITY), l(0.0f);
  Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc]
  InRegisters<T, 1, Shape::Bc / 16> P;      // of the previous tile while S is computed
  const ProblemByRule<Shape, Rule> problem{rule, work.head};
  // opaque(): computed per tile of Q. A register that keeps it through all tiles would be spilled.
  LazySoftmax<Shape, ProblemByRule<Shape, Rule>> softmax{
      m, l, problem, work.query0 + static_cast<int>(opaque(threadIdx.x)) / WARP * 16};
  // Tiles before this one may need the window's mask in these rows, and are exact. opaque(): nvcc
  // would compute it again in each tile.
  const int lazy_begin =
      opaque((rule.problem.first_key(softmax.query0 + 15) + Shape::Bc - 1) / Shape::Bc);
  const auto own = work.tiles_seen_by(rule.problem, work.query0 + Q.row0, WARPGROUP_ROWS);

  // Tiles that only other warpgroups see are released unread: skip() of parts/panels_forward.cuh.
  for (int j = work.tiles.end - 1; j >= own.end; --j, KV_ring.next()) skip(shared, KV_ring);
  if (own.begin < own.end) {
    // 1. S of the last tile, and P. O is still 0: nothing to rescale.
    // Read after write: K has landed.
    wait_full(shared.full_K[KV_ring.stage()], KV_ring.parity());
    issue_S(S, Q, shared.K[KV_ring.stage()]);  // (8.1)
    // Read after write: S is complete.
    // Write after read: this warp's share of the product has read K.
    wgmma_wait<0>(registers(S));
    release(shared.empty_K[KV_ring.stage()]);
    cap(S, problem);
    softmax.exact(S, own.end - 1);
    P = InRegisters<T, 1, Shape::Bc / 16>(S);
    for (int j = own.end - 2; j >= own.begin; --j) {
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
      cap(S, problem);
      const bool is_lazy = !Shape::SCALE_FIRST && lazy_begin <= j && j < softmax.lazy_end;
      const bool P_is_final = is_lazy && softmax.try_lazy(S);
      // Read after write: O is complete.
      // Write after read: this warp's share of the product has read P and V_(j+1).
      wgmma_wait<0>(registers(O));
      release(shared.empty_V[previous.stage()]);

      // 4. P with the true maximum.
      if (!P_is_final) {
        if (is_lazy) {  // rare
          softmax.repair(S, Q_tile.below(threadIdx.x / WARP * 16), shared.K[stage], j);
          cap(S, problem);
        }
        O.scale_rows(softmax.exact(S, j));
      }
      // Write after read: this warp will not read K_j again.
      release(shared.empty_K[stage]);
      P = InRegisters<T, 1, Shape::Bc / 16>(S);
    }
    // 5. O += P V of the first tile.
    // Read after write: V has landed.
    wait_full(shared.full_V[KV_ring.stage()], KV_ring.parity());
    issue_PV(O, P, shared.V[KV_ring.stage()]);
    // Read after write: O is complete.
    wgmma_wait<0>(registers(O));
    release(shared.empty_V[KV_ring.stage()]);
    KV_ring.next();
  }
  for (int j = own.begin - 1; j >= work.tiles.begin; --j, KV_ring.next()) skip(shared, KV_ring);
  // Write after read: the products and repair() of all four warps have read Q; O is staged there.
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
  const int warp_row = opaque(threadIdx.x) / WARP * 16, head = opaque(work.head);
  if constexpr (Rule::RAGGED) {
    // By threads: the map of O would let a warp store into the next sequence.
    write_output(O, m, l, problem.scale, queries_of(rule, O_all).head(head),
                 queries_of(rule, L_all).head_vector(head), work.query0 + warp_row,
                 Q_tile.below(warp_row));  // (8.5)
    // Write after write: the next Q, by the TMA (async proxy), follows this thread's O.
    fence_proxy_async();
  } else {
    write_by_tma(O, m, l, problem.scale, maps.O, L_all, head / rule.problem.H,
                 head % rule.problem.H, work.query0 + warp_row, Q_tile.below(warp_row));  // (8.5)
  }
}

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Rule rule, const __grid_constant__ Maps maps, Tensor<T> O_all,
                   Tensor<float> L_all, Tensor<int> counter, Schedule schedule) {
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
      const WindowedWork<Shape, Rule> work(rule, schedule, work_id);
      produce<T>(shared, maps, work, work_id, Q_ring, KV_ring);
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
      const WindowedWork<Shape, Rule> work(rule, schedule, work_id);
      consume<T>(shared, maps, O_all, L_all, work, shared.Q[Q_ring.stage()], KV_ring);
      // Write after read: this warp's rows of O have been read; the next Q may land there.
      release(shared.empty_Q[Q_ring.stage()]);
    }
  }
}

template <class Shape, class Rule>
void start_with(const Rule& rule, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    Schedule schedule = schedule_of<Shape>(a.problem);
    if constexpr (Rule::RAGGED) {
      schedule.tiles_of_head = static_cast<int>(a.order.shape[2]);
      schedule.end = schedule.tiles_of_head * a.problem.H;
      // A head begins with its longest tiles, of which the last heads have too few for all SMs: up
      // to a sixth of the time with fewer at once (H200).
      schedule.heads_at_once = std::max(schedule.heads_at_once, 4);
    }
    const auto blocks = static_cast<unsigned>(std::min(schedule.end, a.limits.multiprocessors));
    launch("tensor_options_hopper",
           {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape, Rule>, rule, maps_of<Shape>(a), view<T>(a.O), view<float>(a.L),
           view<int>(a.workspace("counter")), schedule);
  });
}

template <class Shape>
void start(Shape, const Attention& a) {
  // Problems without options, if they have a bias or a width that step 7 has not: kernels without
  // the work for options.
  if constexpr (Shape::SCALE_FIRST || (Shape::Width > 128 && Shape::Width < 256)) {
    if (a.problem.is_general()) return start_with<Shape>(score_rule(a), a);
  }
  const OptionsRule rule = score_rule<OptionsRule>(a);
  if (a.problem.sequences.empty()) return start_with<Shape>(rule, a);
  start_with<Shape>(RaggedRule{rule, view<const int>(a.offsets), view<const int>(a.order), 0}, a);
}

// Width, Br, Bc, stages, speed. Step 7's tiles where they leave registers; and wide heads.
constexpr CompiledShape shapes[] = {
    compiled<ForwardShape<64, 192, 96, 3>>("three warpgroups; too few registers for a fourth"),
    compiled<ForwardShape<64, 128, 128, 2>>("two warpgroups", 0.93),
    compiled<ForwardShape<96, 192, 64, 3>>("three warpgroups"),
    compiled<ForwardShape<128, 192, 64, 3>>("three warpgroups"),
    compiled<ForwardShape<128, 128, 128, 2>>("two warpgroups", 0.89),
    compiled<ForwardShape<160, 128, 112, 2>>("two warpgroups"),
    compiled<ForwardShape<192, 128, 80, 2>>("two warpgroups; with two tiles of Q"),
    compiled<ForwardShape<256, 128, 64, 2>>("registers hold no more of O"),
};
constexpr CompiledShape scale_first_shapes[] = {
    compiled<ForwardShape<64, 128, 64, 2, true>>("a bias takes registers"),
    compiled<ForwardShape<64, 64, 64, 2, true>>("little shared memory"),
    compiled<ForwardShape<128, 128, 64, 2, true>>("a bias takes registers"),
    compiled<ForwardShape<128, 64, 64, 2, true>>("little shared memory"),
    compiled<ForwardShape<256, 128, 32, 2, true>>("a bias takes registers"),
    compiled<ForwardShape<256, 64, 32, 2, true>>("little shared memory"),
};

const Variant variant = [] {
  Variant step = hopper_step<shapes>(
      "options_hopper",
      "the loop begins at the window's first key; a softcap or a bias before P; ragged batches");
  step.forward = [](const Attention& a) {
    scale_first(a.problem) ? start_one_of<scale_first_shapes>(a) : start_one_of<shapes>(a);
  };
  step.tiles = [](const Problem& p, Pass pass, const DeviceLimits& limits) {
    return scale_first(p) ? choices_of<scale_first_shapes>(p, pass, limits)
                          : choices_of<shapes>(p, pass, limits);
  };
  step.takes = general_problem | Features::window | Features::softcap | Features::lengths;
  step.fastest = [](const FullProblem& p, Pass pass) {
    const bool wide = p.d > 128 && p.d <= 192;
    return pass == Pass::forward && (wide || scale_first(p) || !p.is_general());
  };
  step.workspace = work_counter;
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_more_options
