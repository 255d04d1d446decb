// 06 FlashAttention-2, forward: decode. Few queries, many keys: every byte is read once
// (docs/reference/decode.md).
//
//   for every tile of packed rows and every split of its keys (one block each), for every tile j of
//   the split's keys:
//     each warp with its 16 keys of the tile, and an m, l and O of its own:
//     S = scale Q K_j^T + bias, masked                      [Br, d] x [d, 16]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                 (6.2)
//     P = e^(S - m_new),   l = alpha l + rowsum P                                       (6.3)
//     O = alpha O + P V_j                                   [Br, 16] x [16, d]          (6.4)
//   of each warp  O_w = O / l,   L_w = m + ln l                                         (6.5)
//   of each block O_a, L_a: the merge of its warps' O_w, L_w                            (K.3)
//   second kernel O, L: the merge of the splits' O_a, L_a                               (K.3)
//
// New since tuned: what is divided among blocks and warps.
// - Blocks share the keys. One query has one tile of rows, and one block per head would leave most
//   of the GPU idle.
// - The query heads of a group are rows of one tile, because they read the same K and V.
// - Warps share the keys of a tile, since there are not enough rows for all of them.
//
// Grid: (tiles of rows * B * Hkv, splits). Block: WARPS; 16 lanes share a row of S and O.
// Shared memory: Q^T [Width, Br]; K_j [Bc, Width], later the warps' O and L; V_j [Bc, Width]; P^T
// [Bc, Br]; K and P^T padded.
// HBM: K and V once per tile of Br rows, Q once per split, the splits' O and L written and read
//   once.
// --tiles: Br packed rows; Bc is the keys of a split (not Shape::Bc, the keys of a tile).
// Shapes: all; d is padded with zeros to 64 or 128.  No backward pass: with few queries there is
// nothing to train.
#pragma once

#include "06_fa2_forward/operands.cuh"
#include "common/parts/bias.cuh"
#include "common/parts/split_keys.cuh"

namespace flash::fa2_forward::more_decode {
namespace {

constexpr int PAD = 4;  // as in tuned

/// Width: d, rounded up. Blocks: per SM; their copies of K or V are all in flight together, which
/// hides HBM's latency. Busy: blocks per SM that suffice for that (measured).
template <int Width_, int Br_, int Blocks, int Busy>
struct DecodeShape {
  static constexpr int Width = Width_, Br = Br_, BLOCKS = Blocks;
  static constexpr int BUSY = Busy, EDGES = 192;  // measured on an H100: fastest_split()
  static constexpr int WARPS = 2, THREADS = WARPS * WARP;
  static constexpr int KEYS = 16, Bc = WARPS * KEYS;  // of a tile: per warp, per block
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Br + PAD;
  static constexpr int SHARED_FLOATS = Width * Br + Bc * (STRIDE + Width) + Bc * P_STRIDE;
  static constexpr std::size_t SHARED_BYTES = SHARED_FLOATS * sizeof(float);
  using Scores = ThreadTile<Br / 2, 1, 16, 1, 4>;              // of a warp: [Br, KEYS]
  using Output = ThreadTile<Br / 2, Width / 16, 16, 1, 4, 4>;  // [Br, Width]

  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == KEYS && Output::WIDTH == Width,
                "tiles are dealt out evenly");
  static_assert(Br * (Width + 1) <= KEYS * STRIDE, "the warps' O and L fit where K was");
};

/// Loads Q^T for packed rows, with zeros beyond the last row and column.
template <class Shape>
__device__ void load_packed(const SharedMatrix<float>& Qt, const Tensor<const float>& Q_all,
                            const PackedRows& rows) {
#pragma unroll 8  // loads in flight
  for (int e = threadIdx.x; e < Shape::Br * Shape::Width; e += Shape::THREADS) {
    const int row = e % Shape::Br, k = e / Shape::Br;
    const bool exists = rows.exists(row) && k < Q_all.cols;
    Qt(k, row) = exists ? Q_all.head(rows.b, rows.head(row))(rows.query(row), k) : 0.0f;
  }
}

/// Stores O in the rows of a tile from row0 on.
template <class Tile>
__device__ void store_rows(const SharedMatrix<float>& tile, int row0, const Tile& O) {
#pragma unroll
  for (int r = 0; r < Tile::ROWS; ++r) {
#pragma unroll
    for (int c = 0; c < Tile::COLS; c += 4) {
      const float* const run = &O.elements[r][c];
      tile.as<float4>(row0 + O.row(r), O.col(c)) = make_float4(run[0], run[1], run[2], run[3]);
    }
  }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    split_kernel(Problem problem, Bias bias, Tensor<const float> Q_all, Tensor<const float> K_all,
                 Tensor<const float> V_all, Tensor<float> part_O_all, Tensor<float> part_L_all,
                 int split_keys) {
  const PackedRows rows(problem, Shape::Br, blockIdx.x);
  const Matrix<const float> K = K_all.head(rows.b, rows.kv_head),
                            V = V_all.head(rows.b, rows.kv_head);
  const int split = blockIdx.y, begin = split * split_keys;
  // The last row sees the most keys.
  const int end = min(begin + split_keys, problem.visible_keys(rows.query(Shape::Br - 1)));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Qt_smem{shared, Shape::Width, Shape::Br, Shape::Br};
  const SharedMatrix<float> K_smem{Qt_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.end(), Shape::Bc, Shape::Width, Shape::Width};
  const SharedMatrix<float> Pt_smem{V_smem.end(), Shape::Bc, Shape::Br, Shape::P_STRIDE};
  const int warp = threadIdx.x / WARP;
  const auto warps_keys = [&](const SharedMatrix<float>& tile) {  // the warp's rows of K, V or P^T
    return SharedMatrix<float>{tile.data + warp * Shape::KEYS * tile.stride, Shape::KEYS, tile.cols,
                               tile.stride};
  };

  // 1. The first tile of K and the packed rows of Q; O = 0, l = 0, m = -inf.
  if (begin < end) load_async<Shape, Shape::Bc>(K_smem, K, begin);
  cp_async_commit();
  load_packed<Shape>(Qt_smem, Q_all, rows);
  typename Shape::Output O(0.0f);      // over the warp's keys, not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's keys only

  const auto power = [](float x) { return exp2_approx(x * LOG2_E); };

  // 2. The tiles of K and V. An empty split, of which no row sees a key, has none.
  for (int key0 = begin; key0 < end; key0 += Shape::Bc) {
    cp_async_wait<0>();
    // Read after write: K_j and Q of all threads have landed.
    // Write after read: no warp still reads V_(j-1), and no lane P_(j-1).
    __syncthreads();
    load_async<Shape, Shape::Bc>(V_smem, V, key0);
    cp_async_commit();

    typename Shape::Scores S(0.0f);
    add_product(S, MnMajor{Qt_smem}, KMajor{warps_keys(K_smem)});  // (6.1)
    S.each_at([&](float& s, int row, int col) {
      const int i = rows.query(row), j = key0 + warp * Shape::KEYS + col;
      s = j < problem.visible_keys(i) ? problem.scale * s + bias(rows.b, rows.head(row), i, j)
                                      : -INFINITY;
    });
    const Rows<O.ROWS> alpha = update_max(m, row_max(S), power);  // (6.2)
    // (6.3)  S becomes P.
    S.each([&](float& s, int r) { s = power(s - zero_if_empty(m[r])); });
    auto& P = S;
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);
    store_transposed(warps_keys(Pt_smem), P);

    cp_async_wait<0>();
    // Read after write: V_j of all threads has landed, and so has P of the warp's other lanes.
    // Write after read: no warp still reads K_j.
    __syncthreads();
    if (key0 + Shape::Bc < end) load_async<Shape, Shape::Bc>(K_smem, K, key0 + Shape::Bc);
    cp_async_commit();

    add_product(O, MnMajor{warps_keys(Pt_smem)}, MnMajor{warps_keys(V_smem)});  // (6.4)
  }

  // 3. (6.5)  Each warp's O and L. They take the place of K, of which no copy is on its way and
  // which no warp still reads.
  const SharedMatrix<float> O_smem{K_smem.data, Shape::WARPS * Shape::Br, Shape::Width,
                                   Shape::Width};
  const SharedMatrix<float> L_smem{O_smem.end(), Shape::WARPS, Shape::Br, Shape::Br};
  l = row_sum<typename Shape::Scores>(l);
  l.each([&](float& sum, int r) {
    if (O.col(0) == 0) L_smem(warp, O.row(r)) = m[r] + logf(sum);  // no visible key: -inf
    sum = sum == 0.0f ? 0.0f : 1.0f / sum;                         // and O = 0
  });
  O.scale_rows(l);
  store_rows(O_smem, warp * Shape::Br, O);

  // 4. (K.3)  The split's O and L.
  // Read after write: O and L of all warps.
  __syncthreads();
  write_part<Shape::WARPS, Shape::Br, Shape::Width>(O_smem, L_smem, rows, problem.Nq, split,
                                                    part_O_all, part_L_all);
}

/// Calls f with the compiled sizes for a problem.
template <class F>
auto in_shape_for(const Problem& p, F f) {
  const bool few = rows_of_group(p) <= 8;
  if (p.d <= 64) return few ? f(DecodeShape<64, 8, 8, 4>{}) : f(DecodeShape<64, 16, 8, 8>{});
  return few ? f(DecodeShape<128, 8, 5, 2>{}) : f(DecodeShape<128, 16, 5, 5>{});
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  in_shape_for(p, [&]<class Shape>(Shape) {
    const unsigned tiles =
        blocks_for(rows_of_group(p), Shape::Br) * static_cast<unsigned>(p.B * p.Hkv);
    const int split_keys = a.tiles.Bc;  // keys of a split, not of a tile
    const auto splits = static_cast<unsigned>(splits_of(p, split_keys));
    launch("decode_split", {dim3(tiles, splits), dim3(Shape::THREADS), Shape::SHARED_BYTES},
           split_kernel<Shape>, p, bias_of(a), view<const float>(a.Q), view<const float>(a.K),
           view<const float>(a.V), view<float>(a.workspace("part_O")),
           view<float>(a.workspace("part_L")), split_keys);
  });
  merge_splits<float>(a);
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass) {
  return in_shape_for(p, [&]<class Shape>(Shape) { return split_workspace(p, Shape::Br); });
}

std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) {
  return in_shape_for(p, [&]<class Shape>(Shape) { return split_choices<Shape>(p, limits); });
}

const Variant variant{
    .name = "decode",
    .idea = "few queries: keys split over blocks and merged, heads of a group as rows of one tile",
    .forward = forward,
    .workspace = workspace,
    .refuse = refuse_splits,
    .tiles = tiles,
    .row_multiple = 4,
    .takes = general_problem,
    .fastest = is_decode};

}  // namespace
}  // namespace flash::fa2_forward::more_decode
