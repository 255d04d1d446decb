// 08 Tensor cores, Hopper backward: the kernel of general.cuh and options.cuh, around the loop of
// loop_by_rule.cuh.
//
// New since step 5, `early`:
// - The rule decides a block's work. In a ragged batch that is a tile of one sequence, and the
//   producer and the adder count from the first row of this sequence.
// - For the same bits in each run the host launches backward_kernel `launches` times, each time for
//   every launches-th tile of keys, so that in one launch a row of dQ gets one addition.
#pragma once

#include "08_tensor_cores/backward/more/options_before_and_after.cuh"
#include "08_tensor_cores/hopper_backward/more/loop_by_rule.cuh"

namespace flash::tensor_cores {
namespace {

/// A tile of keys of the sequence that the rule has entered, and the tiles of queries whose window
/// has any of them, perhaps none.
template <class Shape>
struct WindowedKeyWork : TilesInWindow<Shape> {
  int b, kv_head, key0;

  __device__ WindowedKeyWork(const OptionsProblem& p, int head, int first_key)
      : TilesInWindow<Shape>(p, head % p.Hkv, first_key),
        b(head / p.Hkv),
        kv_head(this->group),
        key0(first_key) {}
};

/// A block's place. opaque(): no register keeps it through the loop, if it is asked for again.
__device__ inline BlockOrder order_of_block(const Problem& p, int heads_at_once, int block) {
  const int heads = p.B * p.Hkv;
  return BlockOrder(gridDim.x / heads, heads, opaque(heads_at_once), opaque(block));
}

/// Its work, in a ragged batch in its sequence, which the rule enters.
template <class Shape, class Rule>
__device__ auto work_of_block(Rule& rule, int heads_at_once, int block) {
  const BlockOrder order = order_of_block(rule.problem, heads_at_once, block);
  if constexpr (Rule::RAGGED) {
    const int key0 = rule.enter(order.tile);
    return WindowedKeyWork<Shape>(rule.problem, order.head, key0);
  } else if constexpr (Rule::OPTIONS) {
    return WindowedKeyWork<Shape>(rule.problem, order.head, order.tile * Shape::Bc);
  } else {
    return KeyWork<Shape>(rule.problem, order);
  }
}

/// The work by rows of the whole batch, as the TMA counts them, of the sequence that the rule has
/// entered. A tile may reach into the next sequence: those keys are masked, and those queries have
/// L = inf, so that P is 0.
template <class Rule, class Work>
__device__ Work rows_in_batch(const Rule& rule, Work work) {
  if constexpr (Rule::RAGGED) {
    const int row0 = rule.offset(0, 0);  // of its queries
    work.first_query += row0, work.end_query += row0, work.key0 += rule.offset(0, 1);
  }
  return work;
}
/// L and D for that work: each sequence has its own padded rows.
template <class Rule>
__device__ Tensor<const float> stats_in_batch(const Rule& rule, Tensor<const float> L_and_D) {
  if constexpr (Rule::RAGGED) L_and_D.data += row_of(rule, 0) - rule.offset(0, 0);
  return L_and_D;
}

/// One thread: K and V of a block's work, to L2.
template <class Shape, class Work>
__device__ void prefetch(const BackwardMaps& maps, const Work& work) {
#pragma unroll
  for (int col = 0; col < Shape::Width; col += PANEL) {
    tma_prefetch(maps.K, col, work.key0, work.kv_head, work.b);
    tma_prefetch(maps.V, col, work.key0, work.kv_head, work.b);
  }
}

/// add_dQ() of that sequence, whose rows in dQ_accum are numbered like its rows of L and D.
template <class T, class Shape, class Rule, class Work>
__device__ void add_dQ_of_sequence(Shared<T, Shape>& shared, const Rule& rule,
                                   const Tensor<float>& dQ_accum, Work work) {
  if constexpr (Rule::RAGGED)
    work.first_query += row_of(rule, 0), work.end_query += row_of(rule, 0);
  add_dQ<T, Shape>(shared, rule.problem, dQ_accum, work);
}

/// Where `general` and `options_early` leave dK and dV: in their tensors, whose head is looked up
/// again, as no register keeps it.
struct GradientsOfBlock {
  int heads_at_once;

  template <class Rule, class T, class Work, class Staging, class Gradient>
  __device__ void write(const Rule& rule, const BackwardTensors<T>& hbm, const Work& work,
                        const Staging& staging, const Gradient& dK, const Gradient& dV) const {
    const int head = order_of_block(rule.problem, heads_at_once, blockIdx.x).head,
              row0 = work.key0 + staging.row0;
    write_rows(keys_of(rule, hbm.dV).head(head), row0, dV, staging);
    write_rows(keys_of(rule, hbm.dK).head(head), row0, dK, staging);
  }
};

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Rule rule, const __grid_constant__ BackwardMaps maps, BackwardTensors<T> hbm,
                    Tensor<float> dQ_accum, int heads_at_once, int blocks_at_once, int launch_index,
                    int launches) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  griddepcontrol_launch_dependents();
  const auto work = work_of_block<Shape>(rule, heads_at_once, blockIdx.x);
  // Another launch's: this block writes nothing, so it need not wait for prepare() either.
  if (work.key0 / Shape::Bc % launches != launch_index) return;
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dSt) init_for_warps(full, Shape::CONSUMERS * 4);
    init_for_warps(shared.full_dQ[0], 4);
    mbarrier_init(shared.empty_dQ[0], 1);  // one arrival, by the adder
    shared.initialize();
    // Looked up again, so that no register keeps it for the loop.
    const auto rows = rows_in_batch(rule, work_of_block<Shape>(rule, heads_at_once, blockIdx.x));
    // Inputs, which the kernels of prepare() do not write.
    if (work.iterations > 0)
      shared.load_tiles(/*stage=*/0, maps, rows, rows.first(rule.problem), /*first=*/true);
    // Read after write: its L and D are visible to this grid, the TMA included.
    // Write after write: it has cleared dQ_accum.
    griddepcontrol_wait();
    if (work.iterations > 0)
      shared.load_stats(/*stage=*/0, stats_in_batch(rule, hbm.L_and_D), rows.b,
                        rows.first(rule.problem));
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role = threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: the producer; 1: the adder
    if (role > 1 || !elect_one()) return;
    if (role == 0) {
      produce<T, Shape>(shared, maps, rule.problem, stats_in_batch(rule, hbm.L_and_D),
                        rows_in_batch(rule, work), /*requested=*/1);
      const int next_block = static_cast<int>(blockIdx.x) + blocks_at_once;
      if (next_block < static_cast<int>(gridDim.x)) {
        const auto next = work_of_block<Shape>(rule, heads_at_once, next_block);
        prefetch<Shape>(maps, rows_in_batch(rule, next));
      }
    } else {
      add_dQ_of_sequence<T, Shape>(shared, rule, dQ_accum, work);
    }
  } else if (warpgroup() == 0) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::MAKER_REGISTERS>();
    consume</*Index=*/0, T, Shape>(shared, rule, hbm, work, GradientsOfBlock{heads_at_once});
  } else if constexpr (Shape::CONSUMERS > 1) {
    setmaxnreg_inc<Shape::RUNNER_REGISTERS>();
    consume</*Index=*/1, T, Shape>(shared, rule, hbm, work, GradientsOfBlock{heads_at_once});
  }
}

/// tiles: of keys, of a head or of all sequences.
template <class Shape, class Rule>
void start_with(const Rule& rule, const Attention& a, int tiles, const char* name) {
  in_type_of(a, [&]<class T>(T) {
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    BackwardTensors<T> hbm;
    if constexpr (Rule::RAGGED) {
      hbm = prepare_ragged<T, Shape::Width, L_IN_POWERS_OF_2<Rule>, /*NextIsEarly=*/true>(
          a, dQ_accum, rule);
    } else {
      hbm = prepare<T, Shape::Width, L_IN_POWERS_OF_2<Rule>, /*NextIsEarly=*/true>(a, &dQ_accum);
    }
    int heads_at_once = heads_in_a_wave(a, tiles);
    if constexpr (Rule::RAGGED) {
      // A sequence with a quarter of all keys is long: blocks of the last head would run alone, up
      // to a sixth of the time (H200). Among short ones the rows of one head stay in L2.
      for (int s = 0; s < a.problem.sequences.count(); ++s)
        if (a.problem.sequence(s).Nk > a.problem.Nk / 4) heads_at_once = std::max(heads_at_once, 4);
    }
    for (int index = 0; index < a.launches; ++index) {
      launch(name,
             {.grid = dim3(static_cast<unsigned>(tiles * a.problem.B * a.problem.Hkv)),
              .block = dim3(Shape::THREADS),
              .shared_bytes = Shape::SHARED_ELEMENTS * sizeof(T),
              .early = index == 0},  // a later one must wait: it adds to the same rows
             backward_kernel<T, Shape, Rule>, rule, backward_maps<Shape>(a), hbm,
             view<float>(dQ_accum), heads_at_once, a.limits.multiprocessors, index, a.launches);
    }
    if constexpr (Rule::RAGGED) {
      convert_ragged<T, Shape::Width, /*Early=*/true>(a, dQ_accum, rule);
    } else {
      convert<T, Shape::Width, /*Early=*/true>(a, dQ_accum);
    }
  });
}

}  // namespace
}  // namespace flash::tensor_cores
