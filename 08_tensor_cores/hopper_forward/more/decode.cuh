// 08 Tensor cores, Hopper forward: decode on wgmma, and any problem with too few tiles of Q for the
// SMs: step 6 with the keys of a tile split over blocks (docs/reference/decode.md).
//
//   for every tile of packed rows and every split of its keys (one block each):
//     (8.1) to (8.4) over the split's tiles of keys
//     O_a = O / l,   L_a = scale m + ln l                                                (8.5)
//   second kernel, if there are splits:  O, L: the merge of their O_a, L_a               (K.3)
//
// New since step 6, as in ../../forward/more/decode.cuh:
// - Blocks share the keys of a tile. Each stores its part of O and L, in fp32.
// - The query heads of a group are rows of one tile, because they read the same K and V. Such rows
//   are no box of a tensor map: threads load Q.
// - No warpgroup skips tiles: the rows of a tile are few queries, which see nearly the same keys.
// - Two warpgroups take turns, as in ping_pong.cuh: while both wait for HBM they may fall in step.
//
// Grid: (tiles of rows * B * Hkv, splits). Block: as step 3.
// HBM: K and V once per tile of rows, Q once per split. Workspace: the splits' O and L, in fp32.
// --tiles: Br packed rows; Bc is the keys of a split (not Shape::Bc, the keys of a tile).
// Shapes: d a multiple of 8, padded with zeros to 64, 128 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/parts/lazy_softmax.cuh"
#include "08_tensor_cores/parts/panels_forward.cuh"
#include "common/parts/split_keys.cuh"

namespace flash::tensor_cores::hopper_forward_more_decode {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_>
struct DecodeShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Width <= 128 ? 128 : 64;
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of S and of O
  // Of the rings: all that fit beside 2 KB for mbarriers, because loads from HBM take long.
  static constexpr int STAGES = (225 * 1024 - 2 * Br * Width) / (2 * 2 * Bc * Width);
  static constexpr int CONSUMERS = Br / WARPGROUP_ROWS, THREADS = (CONSUMERS + 1) * WARPGROUP;
  static constexpr bool MOVES_REGISTERS = CONSUMERS > 1;  // as in step 6
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  static constexpr int BUSY = 1, EDGES = 448;  // measured on an H200: fastest_split()
  template <class T>
  using Shared = ForwardShared<T, Width, Br, Bc, STAGES>;
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr std::size_t SHARED_BYTES = 2 * SHARED_ELEMENTS;

  static_assert(!MOVES_REGISTERS ||
                registers_suffice(THREADS, PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS));
};

/// A block's rows and tiles of keys.
template <class Shape>
struct SplitWork {
  PackedRows rows;
  int split = blockIdx.y, begin, end;  // tiles of keys; none in an empty split

  __device__ SplitWork(const Problem& p, int split_keys) : rows(p, Shape::Br, blockIdx.x) {
    begin = split * split_keys / Shape::Bc;
    // The last row sees the most keys.
    const int keys = p.visible_keys(rows.query(Shape::Br - 1));
    end = (min((split + 1) * split_keys, keys) + Shape::Bc - 1) / Shape::Bc;
  }
};

/// One thread: loads K and V, each tile as soon as its buffer is empty.
template <class T, class Shape>
__device__ void produce(Shared<T, Shape>& shared, const Maps& maps, const SplitWork<Shape>& work) {
  PipelineState<Shape::STAGES> KV_ring;
  for (int j = work.end - 1; j >= work.begin; --j, KV_ring.next()) {
    const int stage = KV_ring.stage(), key0 = j * Shape::Bc;
    // Write after read: all consumers have read the previous K of this stage.
    wait_empty(shared.empty_K[stage], KV_ring.parity());
    mbarrier_arrive_expect_tx(shared.full_K[stage], shared.K[stage].BYTES);
    shared.K[stage].template load</*EvictLast=*/true>(maps.K, shared.full_K[stage], key0,
                                                      work.rows.kv_head, work.rows.b);
    // Write after read: all consumers have read the previous V of this stage.
    wait_empty(shared.empty_V[stage], KV_ring.parity());
    mbarrier_arrive_expect_tx(shared.full_V[stage], shared.V[stage].BYTES);
    shared.V[stage].template load</*EvictLast=*/true>(maps.V, shared.full_V[stage], key0,
                                                      work.rows.kv_head, work.rows.b);
  }
}

/// A consumer warpgroup stores its rows of Q: all loads are in flight before the first store.
template <class T, class QueryRows>
__device__ void load_Q(const QueryRows& Q, const Tensor<const T>& Q_all, const PackedRows& rows) {
  constexpr int CHUNKS = QueryRows::DEPTH * 2, ROWS = WARPGROUP / CHUNKS;  // of 8 columns; at once
  constexpr int LOADS = WARPGROUP_ROWS / ROWS;
  const int row0 = threadIdx.x % WARPGROUP / CHUNKS, col = threadIdx.x % CHUNKS * 8;
  uint4 chunks[LOADS] = {};
#pragma unroll
  for (int n = 0; n < LOADS; ++n) {
    const int row = Q.row0 + row0 + n * ROWS;
    if (rows.exists(row) && col < Q_all.cols)
      chunks[n] = Q_all.head(rows.b, rows.head(row)).template as<uint4>(rows.query(row), col);
  }
#pragma unroll
  for (int n = 0; n < LOADS; ++n) Q.template as<uint4>(row0 + n * ROWS, col) = chunks[n];
  // Read after write: each thread makes its stores visible to wgmma (async proxy), then all four
  // warps have stored.
  fence_proxy_async();
  named_barrier_sync(1 + warpgroup(), WARPGROUP);
}

/// What the first kernel writes: the parts of O and L, or, if there is one split, O and L.
template <class T>
struct Outputs {
  Tensor<T> O;
  Tensor<float> part_O, L;
};

/// A consumer warpgroup: its rows of a tile.
template <class T, class Shape>
__device__ void consume(Shared<T, Shape>& shared, const Problem& problem,
                        const Tensor<const T>& Q_all, const Outputs<T>& out,
                        const SplitWork<Shape>& work) {
  const PackedRows& rows = work.rows;
  const PackedProblem packed{rows, problem};
  const auto Q = shared.Q[0].below(warpgroup() * WARPGROUP_ROWS);  // the warpgroup's rows
  // In each warp: O, not normalised, is [16, Width]; l is of this lane's columns.
  Accumulators<1, Shape::COL_FRAGMENTS> O(0.0f);
  Rows<O.ROWS> m(-INFINITY), l(0.0f);
  Accumulators<1, Shape::KEY_FRAGMENTS> S;  // [16, Bc]
  InRegisters<T, 1, Shape::Bc / 16> P;      // of the previous tile while S is computed
  LazySoftmax<Shape, PackedProblem> softmax{m, l, packed,
                                            static_cast<int>(threadIdx.x) / WARP * 16};

  load_Q(Q, Q_all, rows);
  if (work.end > work.begin) {
    PipelineState<Shape::STAGES> KV_ring;
    if (Shape::CONSUMERS > 1 && warpgroup() == 1 && work.end - work.begin > 1) pass_baton();
    // 1. S of the last tile, and P. O is still 0: nothing to rescale.
    // Read after write: K has landed.
    wait_full(shared.full_K[KV_ring.stage()], KV_ring.parity());
    issue_S(S, Q, shared.K[KV_ring.stage()]);  // (8.1)
    // Read after write: S is complete.
    // Write after read: this warp's share of the product has read K.
    wgmma_wait<0>(registers(S));
    release(shared.empty_K[KV_ring.stage()]);
    softmax.exact(S, work.end - 1);
    P = InRegisters<T, 1, Shape::Bc / 16>(S);
    for (int j = work.end - 2; j >= work.begin; --j) {
      // 2. S = Q K_j^T and O += P V_(j+1) start. (After the last tile nobody takes the baton.)
      const auto previous = KV_ring;
      KV_ring.next();
      const int stage = KV_ring.stage(), parity = KV_ring.parity();
      // No hazard, turns alone: the other warpgroup has issued its products.
      if (Shape::CONSUMERS > 1) take_baton();
      // Read after write: K_j has landed.
      wait_full(shared.full_K[stage], parity);
      issue_S(S, Q, shared.K[stage]);  // (8.1)
      // Read after write: V_(j+1) has landed.
      wait_full(shared.full_V[previous.stage()], previous.parity());
      issue_PV(O, P, shared.V[previous.stage()]);  // (8.4)
      if (Shape::CONSUMERS > 1 && (warpgroup() == 0 || j > work.begin)) pass_baton();

      // 3. P with the current m, while the previous tile's P V is in flight.
      // Read after write: S is complete, O may not be.
      wgmma_wait<1>(registers(S));
      const bool is_lazy = j < softmax.lazy_end;
      const bool P_is_final = is_lazy && softmax.try_lazy(S);
      // Read after write: O is complete.
      // Write after read: this warp's share of the product has read P and V_(j+1).
      wgmma_wait<0>(registers(O));
      release(shared.empty_V[previous.stage()]);

      // 4. P with the true maximum.
      if (!P_is_final) {
        if (is_lazy)  // rare
          softmax.repair(S, shared.Q[0].below(threadIdx.x / WARP * 16), shared.K[stage], j);
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
  }

  // 6. (8.5)  The split's O and L; if there is only one, the row's.
  const int warp_row = opaque(threadIdx.x) / WARP * 16, lane = threadIdx.x % WARP;
  const bool one_split = gridDim.y == 1;
  l = row_sum<decltype(O)>(l);
#pragma unroll
  for (int r = 0; r < O.ROWS; ++r) {
    const int row = warp_row + 8 * r + lane / 4;
    if (!rows.exists(row)) continue;
    const int i = work.split * problem.Nq + rows.query(row), h = rows.head(row);
    if (lane % 4 == 0)  // no visible key: -inf
      out.L.head_vector(rows.b, h)(i) = problem.scale * m[r] + logf(l[r]);
    const float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];  // and O = 0
    const Matrix<T> O_hbm = out.O.head(rows.b, h);
    const Matrix<float> part_O = out.part_O.head(rows.b, h);
#pragma unroll
    for (int n = 0; n < Shape::COL_FRAGMENTS; ++n) {
      const float* const two = &O.elements[0][n][2 * r];
      const int col = 8 * n + fragment::c_col(lane, 0);
      if (col >= O_hbm.cols) continue;
      if (one_split)
        O_hbm.template as<unsigned>(i, col) = pack<T>(two[0] * inverse, two[1] * inverse);
      else
        part_O.as<float2>(i, col) = make_float2(two[0] * inverse, two[1] * inverse);
    }
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    split_kernel(Problem problem, const __grid_constant__ Maps maps, Tensor<const T> Q_all,
                 Outputs<T> out, int split_keys) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  if (threadIdx.x == 0) shared.initialize();
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  const SplitWork<Shape> work(problem, split_keys);
  if (warpgroup() == Shape::CONSUMERS) {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
    if (threadIdx.x / WARP == 4 * Shape::CONSUMERS && elect_one()) produce<T>(shared, maps, work);
  } else {
    if constexpr (Shape::MOVES_REGISTERS) setmaxnreg_inc<Shape::CONSUMER_REGISTERS>();
    consume<T>(shared, problem, Q_all, out, work);
  }
}

/// Calls f with the compiled sizes for a problem, in tiles of Br rows.
template <class F>
auto in_shape(const Problem& p, int Br, F f) {
  const auto in_width = [&](auto low, auto high) { return Br == 64 ? f(low) : f(high); };
  if (p.d <= 64) return in_width(DecodeShape<64, 64>{}, DecodeShape<64, 128>{});
  if (p.d <= 128) return in_width(DecodeShape<128, 64>{}, DecodeShape<128, 128>{});
  return in_width(DecodeShape<256, 64>{}, DecodeShape<256, 128>{});
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  const auto splits = static_cast<unsigned>(splits_of(p, a.tiles.Bc));
  in_type_of(a, [&]<class T>(T) {
    in_shape(p, a.tiles.Br, [&]<class Shape>(Shape) {
      const auto tiles = blocks_for(rows_of_group(p), Shape::Br),
                 heads = static_cast<unsigned>(p.B * p.Hkv);
      const Outputs<T> out{view<T>(a.O), view<float>(a.workspace("part_O")),
                           view<float>(splits == 1 ? a.L : a.workspace("part_L"))};
      launch("tensor_decode_hopper",
             {dim3(tiles * heads, splits), dim3(Shape::THREADS), Shape::SHARED_BYTES},
             split_kernel<T, Shape>, p, maps_of<Shape>(a), view<const T>(a.Q), out, a.tiles.Bc);
    });
    if (splits > 1) merge_splits<T>(a);
  });
}

constexpr int SMS = 132;  // of an H200

/// The estimated time with tiles of Br rows.
std::int64_t estimate(const Problem& p, int Br) {
  return in_shape(p, Br, [&]<class Shape>(Shape) { return fastest_split<Shape>(p, SMS).time; });
}
/// A tile of 64 rows takes 65 % of the time of one of 128 (measured).
int fastest_height(const Problem& p) {
  return estimate(p, 64) * 65 <= estimate(p, 128) * 100 ? 64 : 128;
}

/// Where step 7 would leave SMs idle for long enough, by two estimates. But with one tile and very
/// many keys the kernel for any GPU reads HBM 5 % faster (d = 128).
bool is_fastest(const FullProblem& p, Pass pass) {
  const std::int64_t elements = std::int64_t{p.B} * p.Hkv * p.Nk * p.d;  // of K
  const bool by_bytes = rows_of_group(p) <= 16 && p.d > 64 && p.d <= 128 && elements >= 1 << 27;
  if (pass != Pass::forward || by_bytes) return false;
  const int Br = p.d <= 64 ? 256 : p.d <= 128 ? 192 : 128;  // of step 7
  const std::int64_t tiles = std::int64_t{p.B} * p.H * blocks_for(p.Nq, Br);
  const std::int64_t unsplit = (tiles + SMS - 1) / SMS * (p.Nk + 192);
  // Fitted to 508 problems (H200). Wider heads are padded to 256 here.
  const std::int64_t percent = p.d <= 128 ? 90 : 25600 / p.d;
  return estimate(p, fastest_height(p)) * percent / 100 < unsplit;
}

std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) {
  const auto of_height = [&](int Br) {
    return in_shape(p, Br, [&]<class Shape>(Shape) { return split_choices<Shape>(p, limits); });
  };
  const int Br = fastest_height(p);
  std::vector<TileChoice> list = of_height(Br);
  if (rows_of_group(p) > 64) std::ranges::copy(of_height(192 - Br), std::back_inserter(list));
  return list;
}

const Variant variant = {
    .name = "decode_hopper",
    .idea = "few blocks: keys split over blocks and merged, heads of a group as rows of one tile",
    .forward = forward,
    .workspace = [](const Problem& p, Pass) { return split_workspace(p, 128); },  // for 64, too
    .refuse = refuse_splits,
    .tiles = tiles,
    .dtypes = {Dtype::fp16, Dtype::bf16},
    .max_head_dim = 256,
    .row_multiple = 8,
    .takes = plain_problem,
    .refuse_on = refuse_unless_sm90,
    .fastest = is_fastest};

}  // namespace
}  // namespace flash::tensor_cores::hopper_forward_more_decode
