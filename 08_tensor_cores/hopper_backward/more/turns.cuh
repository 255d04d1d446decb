// 08 Tensor cores, Hopper backward: the kernel of ordered.cuh, which says why and what it costs, of
// ordered_softcap.cuh and of divided.cuh: the loop of loop_by_rule.cuh, in blocks that take turns
// at a tile of dQ.
//
// New since step 4, `lead`, in this order: two adders, and at Width 128 two makers; the order of
// the tiles of queries; the turn that an adder waits for and passes on; the ticket of a block; and
// as parameters the rule of the scores, and where dK and dV go.
#pragma once

#include "08_tensor_cores/hopper_backward/more/loop_by_rule.cuh"

namespace flash::tensor_cores {
namespace {

/// LoopShape with two adders. At Width 128 both warpgroups make dQ: one alone stores it so late
/// that the blocks behind it wait, 3 % of the time (H200).
template <int Width, int Br, int Bc>
using LoopInTurns = LoopShape<Width, Br, Bc, /*DQStages=*/2, Width == 128 && Bc == 128 ? 2 : 1>;

template <int Width, int Br, int Bc>
struct TurnShape : LoopInTurns<Width, Br, Bc> {
  template <class T>
  struct Shared : LoopInTurns<Width, Br, Bc>::template Shared<T> {
    int ticket;  // index of the block's work
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
};

/// A block's work. Order: the last tile of queries first, and at each tile all heads of the group.
/// - Last first, because the last queries see every tile of keys: all blocks begin at the same
///   tile, and then follow each other, one tile apart. In the other order, under a causal mask, a
///   block would wait for its predecessors at its diagonal.
/// - Heads inside: head by head, a block with fewer tiles would reach the next head before its
///   predecessors, and wait there.
template <class Shape>
struct OrderedWork : KeyWork<Shape> {
  using KeyWork<Shape>::KeyWork;

  __device__ QueryTile first(const Problem& p) const {
    return {this->group * p.group_size(), (p.Nq - 1) / Shape::Br * Shape::Br};
  }
  __device__ QueryTile after(const Problem& p, QueryTile at) const {
    const int end = (this->group + 1) * p.group_size();
    return at.h + 1 < end ? QueryTile{at.h + 1, at.query0}
                          : QueryTile{end - p.group_size(), at.query0 - Shape::Br};
  }
};

/// Waits until tiles of keys 0 .. key_tile - 1 have been added. Their blocks have smaller tickets:
/// they run already.
__device__ inline void wait_for_turn(const int* turn, int key_tile) {
  // Read after write: the acquiring load makes the previous additions visible to this thread.
  wait_until_equal(turn, key_tile);
  // Read after write: and the fence makes them visible to the TMA.
  fence_proxy_async_global();
}

/// One thread per stage of the ring of dQ: adds a tile to dQ_accum when the consumers have stored
/// it and its turn has come. turns [B, H, 1, tiles of queries]: how many tiles of keys have been
/// added to this tile of dQ.
template <class T, class Shape>
__device__ void add_dQ_in_turns(Shared<T, Shape>& shared, const Problem& problem,
                                const Tensor<float>& dQ_accum, const Tensor<int>& turns_all,
                                const OrderedWork<Shape>& work, int stage) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  const float* const dQ_smem = shared.dQ[stage];
  const int key_tile = work.key0 / Shape::Bc;
  int parity = 0;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    if (iteration % Shape::DQ_STAGES != stage) continue;
    const auto target = dQ_accum.head(work.b, at.h).address(0, at.query0 * Shape::Width);
    const Matrix<int> turns = turns_all.head(work.b, at.h);
    const int query_tile = at.query0 / Shape::Br;
    // Read after write: dQ_i is complete.
    wait_full(shared.full_dQ[stage], parity);
    if (key_tile == 0) {  // nothing to add to yet
      bulk_store(target, dQ_smem, BYTES);
    } else {
      wait_for_turn(turns.address(0, query_tile), key_tile);
      bulk_reduce_add(target, dQ_smem, BYTES);
    }
    bulk_commit();
    // Read after write: the next block has to see the addition with its turn. bulk_wait_read would
    // not say that it is complete; the release below passes on what it makes visible to this
    // thread. Write after read: the TMA has read dQ_i, whose buffer the
    // consumers fill next.
    bulk_wait<0>();
    mbarrier_arrive(shared.empty_dQ[stage]);
    // The turn of (head, tile of queries) is key_tile now. + 1 lets the next block add; the last
    // one resets it to 0.
    const bool last =
        work.key0 + Shape::Bc >= problem.visible_keys(min(at.query0 + Shape::Br, problem.Nq) - 1);
    add_release(turns.address(0, query_tile), last ? -key_tile : 1);
    parity ^= 1;
  }
}

/// Where `ordered` leaves dK and dV, which are of a whole group: in their tensors.
struct GradientsOfGroup {
  __device__ int kv_head(int group) const { return group; }

  template <class Rule, class T, class Work, class Staging, class Gradient>
  __device__ void write(const Rule&, const BackwardTensors<T>& hbm, const Work& work,
                        const Staging& staging, const Gradient& dK, const Gradient& dV) const {
    const int row0 = work.key0 + staging.row0;
    write_rows(hbm.dV.head(work.b, work.kv_head), row0, dV, staging);
    write_rows(hbm.dK.head(work.b, work.kv_head), row0, dK, staging);
  }
};

/// `out` says which K and V a block loads, and where its dK and dV go.
template <class T, class Shape, class Rule, class Out>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_in_turns(Rule rule, const __grid_constant__ BackwardMaps maps, BackwardTensors<T> hbm,
                      Tensor<float> dQ_accum, Tensor<int> counter, Tensor<int> turns,
                      int heads_at_once, Out out) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  if (threadIdx.x == 0) {
    // Before initialize(), whose fence publishes these mbarriers too.
    for (Mbarrier& full : shared.full_dSt) init_for_warps(full, Shape::CONSUMERS * 4);
    for (Mbarrier& full : shared.full_dQ) init_for_warps(full, Shape::MAKERS * 4);
    for (Mbarrier& empty : shared.empty_dQ) mbarrier_init(empty, 1);  // one arrival, by an adder
    shared.initialize();
    const auto next_ticket = counter.head(0, 0).address(0, 0);
    const int end = static_cast<int>(gridDim.x);
    shared.ticket = atomicAdd(next_ticket, 1);
    // The last ticket of all: the counter is 0 again for the next launch.
    if (shared.ticket == end - 1) atomicSub(next_ticket, end);
  }
  // Read after write: all threads see the initialised mbarriers and the ticket. From here on roles
  // differ: no more block-wide barriers.
  __syncthreads();
  const int work_id = __shfl_sync(ALL_LANES, shared.ticket, 0);
  OrderedWork<Shape> work(rule.problem, heads_at_once, work_id);

  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    const int role = threadIdx.x / WARP - 4 * Shape::CONSUMERS;  // 0: producer; 1, 2: adders
    if (role > 2 || !elect_one()) return;
    if (role == 0) {
      work.kv_head = out.kv_head(work.group);
      produce<T, Shape>(shared, maps, rule.problem, hbm.L_and_D, work);
    } else {
      add_dQ_in_turns<T>(shared, rule.problem, dQ_accum, turns, work, role - 1);
    }
  } else if (warpgroup() == 0) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::MAKER_REGISTERS>();
    consume</*Index=*/0, T, Shape>(shared, rule, hbm, work, out);
  } else if constexpr (Shape::CONSUMERS > 1) {
    setmaxnreg_inc<Shape::RUNNER_REGISTERS>();
    consume</*Index=*/1, T, Shape>(shared, rule, hbm, work, out);
  }
}

// ---- The host ----------------------------------------------------------------------------------

/// The sum of dQ; the counter of tickets; a turn per tile of queries.
inline std::vector<WorkspaceSpec> workspace_of_turns(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> list = summing_workspace(p, pass);
  if (pass == Pass::forward) return list;
  list.push_back({.name = "counter", .shape = {1, 1, 1, 1}, .zeroed = true});
  list.push_back({.name = "turns",
                  .shape = {p.B, p.H, 1, padded_queries(p) / WARPGROUP_ROWS},
                  .zeroed = true});
  return list;
}

/// How many heads to run at once. Blocks of a head wait for one another, and fewer of them run at a
/// time with more heads in flight: two waves of heads. Under a mask, where blocks also differ in
/// length, the heads that L2 holds, if there are more.
template <class Shape>
int heads_in_turns(const Attention& a, const Problem& p, int tiles) {
  const int two_waves = 2 * heads_in_a_wave(a, tiles);
  if (!p.causal) return two_waves;
  const std::int64_t bytes =
      std::int64_t{p.Nq} * p.group_size() * Shape::Width * (2 + 2 + 4);  // Q, dO, dQ_accum
  return std::max(two_waves, heads_in_L2(p.B * p.Hkv, bytes));
}

/// Starts the kernels up to dQ_accum. The rule has the problem as blocks see it.
template <class T, class Shape, class Rule, class Out>
void start_turns(const char* name, const Attention& a, const Rule& rule, const Out& out) {
  const Problem& p = rule.problem;
  const TensorRef& dQ_accum = a.workspace("dQ_accum");
  // No block stores dQ of queries that see no key: clear it here.
  const TensorRef* const cleared = p.causal && p.Nq > p.Nk ? &dQ_accum : nullptr;
  const auto hbm = prepare<T, Shape::Width, L_IN_POWERS_OF_2<Rule>>(a, cleared);
  const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
  launch(name,
         {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
          Shape::SHARED_ELEMENTS * sizeof(T)},
         backward_in_turns<T, Shape, Rule, Out>, rule, backward_maps<Shape>(a), hbm,
         view<float>(dQ_accum), view<int>(a.workspace("counter")), view<int>(a.workspace("turns")),
         heads_in_turns<Shape>(a, p, tiles), out);
}

}  // namespace
}  // namespace flash::tensor_cores
