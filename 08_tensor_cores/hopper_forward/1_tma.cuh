// 08 Tensor cores, Hopper forward, step 1: copies by the Tensor Memory Accelerator (TMA), tracked by mbarriers.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c m - c m_new)  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since forward/7_tuned.cuh:
// - One thread asks the TMA for a tile. The TMA computes all addresses, swizzles, and writes zeros beyond the last row and
//   column; the other threads copy nothing. In the same way the TMA stores O.
// - The TMA counts landed bytes on an mbarrier, and every thread waits on that one object, instead of waiting for its own
//   copies and then at a barrier for the other threads' copies.
// - Tiles consist of panels of 64 columns (parts/panels.cuh). A width need only be a multiple of 16, so 80 is available.
//
// Grid: Tr*B*H. Block: warps; a warp owns 16 ROW_TILES rows of S and O; a row is shared by the 4 lanes of a quad.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.  Workspace: padded copies if d % 8 != 0.
// Shapes: all; d is padded with zeros to 64, 80, 96, 128 or 256. Needs the TMA: sm_90 or newer.
#pragma once

#include "08_tensor_cores/parts/launch_hopper.cuh"
#include "08_tensor_cores/parts/panels.cuh"

namespace flash::tensor_cores::hopper_forward_1 {
namespace {

/// The layout of a block's shared memory: tiles of 16-bit elements, which begin at multiples of 1024 bytes, then mbarriers.
template <int Width, int Br, int Bc>
struct TmaStorage {
  unsigned short Q[tile_elements(Br, Width)];
  unsigned short K[2][tile_elements(Bc, Width)], V[2][tile_elements(Bc, Width)];  // two stages
  struct alignas(256) Barriers {
    Mbarrier full_KV[2], full_Q;
  } barriers;
};

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowTiles, int Blocks>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_TILES = RowTiles;                       // of 16 rows, per warp
  static constexpr int KEY_TILES = Bc / 8, COL_TILES = Width / 8;  // of 8 columns of S and of O
  static constexpr int THREADS = Br / (16 * ROW_TILES) * WARP;
  static constexpr int BLOCKS = Blocks;                              // per SM (occupancy); they share its registers
  static constexpr bool Q_STAYS = Width / 16 * ROW_TILES * 4 <= 32;  // registers for a warp's rows of Q
  using Storage = TmaStorage<Width, Br, Bc>;
  static constexpr int SHARED_ELEMENTS = sizeof(Storage) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Br % (16 * ROW_TILES) == 0 && Bc % 16 == 0 && Width % 16 == 0, "whole fragments");
};

/// The warp's rows of Q as left operand, in registers or in shared memory.
template <class Shape, class Tile>
__device__ auto operand_of_Q(const Tile& Q_rows) {
  if constexpr (Shape::Q_STAYS) {
    return InRegisters<typename Tile::T, Shape::ROW_TILES, Tile::DEPTH>(Q_rows.left());
  } else {
    return Q_rows.left();
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(ScoreRule rule, const __grid_constant__ Maps maps, Tensor<T> O_all, Tensor<float> L_all, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // this architecture is too old: never launched
  const Problem& problem = rule.problem;
  // The last tiles of Q, which see the most keys under a causal mask, start first.
  const BlockOrder order((problem.Nq + Shape::Br - 1) / Shape::Br, problem.B * problem.H, heads_at_once);
  const int query0 = (order.tiles_of_head - 1 - order.tile) * Shape::Br, b = order.head / problem.H, h = order.head % problem.H;

  using QTile = PanelTile<T, Shape::Br, Shape::Width>;
  using KTile = PanelTile<T, Shape::Bc, Shape::Width>;
  using Storage = typename Shape::Storage;
  T* const start = dynamic_shared<T>(Shape::SHARED_ELEMENTS);
  const QTile Q_smem(start + offsetof(Storage, Q) / 2);
  const auto K_smem = [&](int stage) { return KTile(start + offsetof(Storage, K) / 2 + stage * KTile::ELEMENTS); };
  const auto V_smem = [&](int stage) { return KTile(start + offsetof(Storage, V) / 2 + stage * KTile::ELEMENTS); };
  auto& bars = reinterpret_cast<Storage*>(start)->barriers;
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_TILES;  // the warp's first row of the tile

  const float c = rule.factor * LOG2_E;

  using Output = Accumulators<Shape::ROW_TILES, Shape::COL_TILES>;
  Output O(0.0f);                            // [16 ROW_TILES, Width], not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  // No row of the tile sees keys from seen_by_any on.
  const int seen_by_any = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  const int Tc = (seen_by_any + Shape::Bc - 1) / Shape::Bc;

  const auto load_tile = [&](int j) {  // called by one thread
    Mbarrier& full = bars.full_KV[j % 2];
    mbarrier_arrive_expect_tx(full, 2 * KTile::BYTES);
    K_smem(j % 2).load(maps.K, full, j * Shape::Bc, problem.kv_head(h), b);
    V_smem(j % 2).load(maps.V, full, j * Shape::Bc, problem.kv_head(h), b);
  };

  // 1. Q and the first tiles of K and V. A phase of these mbarriers completes after one arrival and the bytes that it announced.
  if (threadIdx.x == 0) {
    mbarrier_init(bars.full_KV[0], 1);
    mbarrier_init(bars.full_KV[1], 1);
    mbarrier_init(bars.full_Q, 1);
    fence_mbarrier_init();  // the TMA sees the initialised mbarriers
    if (Tc > 0) {
      mbarrier_arrive_expect_tx(bars.full_Q, QTile::BYTES);
      Q_smem.load(maps.Q, bars.full_Q, query0, h, b);
      load_tile(0);
    }
  }
  __syncthreads();                            // read after write: all threads see the initialised mbarriers
  if (Tc > 0) mbarrier_wait(bars.full_Q, 0);  // read after write: Q has landed

  const auto Q = operand_of_Q<Shape>(Q_smem.below(warp_row));
  for (int j = 0; j < Tc; ++j) {
    // 2. K and V have landed; the prefetch of the next tiles starts.
    const int parity = j / 2 % 2;                // each stage has one phase per two tiles
    mbarrier_wait(bars.full_KV[j % 2], parity);  // read after write: K_j and V_j have landed
    __syncthreads();                             // write after read: no warp still reads K_(j-1), V_(j-1)
    if (threadIdx.x == 0 && j + 1 < Tc) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_TILES, Shape::KEY_TILES> S(0.0f);  // [16 ROW_TILES, Bc]
    add_product(S, Q, K_smem(j % 2).transposed());             // (8.1)
    rule.apply(S, order.head, query0 + warp_row, j * Shape::Bc);
    const auto alpha = raise(m, row_max(S), c);  // (6.2)
    O.scale_rows(alpha);                         // not later: the exponentials need alpha's registers
    l = alpha * l;
    exponentiate(S, m, c, rule.scale_first);  // (8.2): S is P now
    l = l + lane_sum(S);

    // 4. O += P V.
    add_product(O, InRegisters<T, Shape::ROW_TILES, Shape::Bc / 16>(S), V_smem(j % 2).right());  // (6.4)
  }

  // 5. O / l, staged in Q's buffer: each warp in its own rows of Q, which no other warp reads. (8.5)
  const QTile staging = Q_smem.below(warp_row);
  if (problem.d % 8 == 0) {
    normalize(O, m, l, rule.factor, L_all.head_vector(b, h), query0 + warp_row);
    __syncwarp();  // write after read: all lanes have read Q
    store(staging, O);
    fence_proxy_async();  // read after write: the TMA sees this thread's stores,
    __syncwarp();         // and those by other threads
    if (threadIdx.x % WARP == 0) {
      staging.store(maps.O, query0 + warp_row, h, b);
      bulk_commit();
      bulk_wait_read<0>();  // shared memory is given back with the block: the TMA has read O
    }
  } else {  // rows of O are not 16-byte aligned: the TMA cannot store them
    write_output(O, m, l, rule.factor, O_all.head(b, h), L_all.head_vector(b, h), query0 + warp_row, staging);
  }
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const int heads = p.B * p.H, group = p.group_size();  // heads of a group share K and V
    const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(heads);
    launch("tensor_tma", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)}, forward_kernel<T, Shape>,
           score_rule(a), maps_of<T, Shape>(a, 16 * Shape::ROW_TILES), view<T>(a.O), view<float>(a.L),
           heads_in_L2(heads, std::int64_t{2} * p.Nk * p.d * 2 / group));
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why) {
  return compiled_shape<ForwardShape<Sizes...>>(why, start<ForwardShape<Sizes...>>);
}

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
