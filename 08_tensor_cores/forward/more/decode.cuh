// 08 Tensor cores, forward: decode. Few queries, many keys: K and V are read once if a group fits
// in a tile (docs/reference/decode.md).
//
//   for every tile of 16 packed rows and every split of its keys (one block each), for every tile j
//   of the split's keys:
//     each warp takes 16 keys of the tile and keeps its own m, l and O:
//     S = scale Q K_j^T + bias, masked                      [16, d] x [d, 16]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                 (6.2)
//     P = e^(S - m_new),   l = alpha l + rowsum P                                       (6.3)
//     O = alpha O + P V_j                                   [16, 16] x [16, d]          (6.4)
//   of each warp  O_w = O / l,   L_w = m + ln l                                         (6.5)
//   of each block O_a, L_a: the merge of its warps' O_w, L_w                            (K.3)
//   second kernel O, L: the merge of the splits' O_a, L_a                               (K.3)
//
// New since step 7: what is divided among blocks and warps, as in chapter 06's decode.
// - Blocks share the keys. One query has one tile of rows, and one block per head would leave most
//   of the GPU idle.
// - The query heads of a group are rows of one tile, because they read the same K and V.
// - Warps share the keys of a tile: 16 rows, the fewest that mma.sync takes, are enough for one
//   warp only.
// - The sequences of a cache differ in length, may be split into pages, and only the GPU knows
//   their lengths (Cache). The grid covers the longest possible one; a block beyond the last key
//   does nothing but write an empty part.
// - Memory sets the pace, not products: copies are in flight all the time, and the softmax is the
//   plain one, with a maximum in every tile.
//
// Grid: (tiles of rows * B * Hkv, splits). Block: WARPS; a row is shared by the 4 lanes of a quad.
// Shared memory: STAGES tiles each of K and V [Bc, Width], later the warps' O and L in fp32.
// HBM: K and V once per tile of 16 rows, Q once per warp and split, the splits' O and L written and
//   read once.
// Workspace: the splits' O and L in fp32.
// --tiles: Br is 16, Bc the keys of a split (not Shape::Bc, the keys of a tile).
// Shapes: all; d is padded with zeros to 64, 128 or 256.  No backward pass: with few queries there
//   is nothing to train.
#pragma once

#include "08_tensor_cores/parts/addresses.cuh"
#include "08_tensor_cores/parts/epilogue.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/softmax.cuh"
#include "common/parts/bias.cuh"
#include "common/parts/split_keys.cuh"

namespace flash::tensor_cores::forward_more_decode {
namespace {

/// Width: d, rounded up. Stages: tiles in the ring, of which all but one are in flight. Busy: this
/// many blocks per SM are enough (measured).
template <int Width_, int Warps, int Stages, int Busy>
struct DecodeShape {
  static constexpr int Width = Width_, Br = 16, WARPS = Warps, THREADS = WARPS * WARP,
                       STAGES = Stages;
  static constexpr int BLOCKS = 3;                    // per SM, with 64 KB of shared memory each
  static constexpr int BUSY = Busy, EDGES = 192;      // measured on an H100: fastest_split()
  static constexpr int KEYS = 16, Bc = WARPS * KEYS;  // of a tile: per warp, per block
  static constexpr int COL_FRAGMENTS = Width / 8;     // of 8 columns of O
  static constexpr int SHARED_ELEMENTS = 2 * STAGES * Bc * Width;
  static constexpr std::size_t SHARED_BYTES = 2 * SHARED_ELEMENTS;
  // Rows of O in shared memory start 8 banks apart, so that the quads of four rows store to 32
  // different banks.
  static constexpr int STRIDE = Width + 8;

  static_assert(WARPS * Br * (STRIDE + 1) * sizeof(float) <= SHARED_BYTES,
                "the warps' O and L fit where K and V were");
  static_assert(min_sm(SHARED_BYTES, false) == 75, "one shape per width, for every GPU");
  static_assert(SPLIT_UNIT % Bc == 0, "no tile crosses a page: Cache");
};

/// Packed rows of Q as left operand, straight from global memory: a register holds two neighbours
/// of a row.
template <class T, int Width>
struct PackedOperand {
  static constexpr int DEPTH = Width / 16;
  const Tensor<const T>& Q_all;
  const PackedRows& rows;

  __device__ void load(unsigned (&A)[4], int, int k) const {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      const int row = fragment::a_row(lane, reg), col = 16 * k + fragment::a_col(lane, reg);
      A[reg] = 0;
      if (rows.exists(row) && col < Q_all.cols) {
        A[reg] = Q_all.head(rows.b, rows.head(row)).template as<unsigned>(rows.query(row), col);
      }
    }
  }
};

/// Keys: OfBatch or Cache.
template <class T, class Shape, class Keys>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    split_kernel(Problem problem, Keys keys, Bias bias, Tensor<const T> Q_all,
                 Tensor<const T> K_all, Tensor<const T> V_all, Tensor<float> part_O_all,
                 Tensor<float> part_L_all, int split_keys) {
  const PackedRows rows(problem, Shape::Br, blockIdx.x);
  const int split = blockIdx.y, first_key = keys.enter(problem, rows.b);
  const int begin = max(split * split_keys, first_key / Shape::Bc * Shape::Bc);
  // The last row sees the most keys.
  const int end = min((split + 1) * split_keys, problem.visible_keys(rows.query(Shape::Br - 1)));
  const int tiles =
      end > begin ? (end - begin + Shape::Bc - 1) / Shape::Bc : 0;  // none in an empty split
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

  T* const shared = dynamic_shared<T>(Shape::SHARED_ELEMENTS);
  const auto K_smem = [&](int j) {  // a ring of tiles in the first half; V's in the second
    return Tile<T, Shape::Width>(shared + j % Shape::STAGES * Shape::Bc * Shape::Width, Shape::Bc);
  };
  const auto V_smem = [&](int j) {
    return Tile<T, Shape::Width>(K_smem(j).elements.data + Shape::SHARED_ELEMENTS / 2, Shape::Bc);
  };

  // 1. The first tiles of K and V, one group of copies per tile; Q into registers.
  using Copy = Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>;
  const auto load_tile = [&](int j) {
    if (j < tiles) {
      const auto from = [&](const Tensor<const T>& all) {
        return Copy(keys.below(all, rows.b, rows.kv_head, begin + j * Shape::Bc, problem.Nk), 0);
      };
      from(K_all).load_async(K_smem(j));
      from(V_all).load_async(V_smem(j));
    }
    // At the end an empty group, so that the wait below leaves the same number of groups.
    cp_async_commit();
  };
#pragma unroll
  for (int j = 0; j < Shape::STAGES - 1; ++j) load_tile(j);
  const InRegisters<T, 1, Shape::Width / 16> Q(PackedOperand<T, Shape::Width>{Q_all, rows});

  using Output = Accumulators<1, Shape::COL_FRAGMENTS>;
  using Scores = Accumulators<1, Shape::KEYS / 8>;
  Output O(0.0f);                            // [16, Width], over the warp's keys, not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's keys only

  for (int j = 0; j < tiles; ++j) {
    // 2. K_j and V_j have landed; the copies of a later tile start.
    cp_async_wait<Shape::STAGES - 2>();
    // Read after write: K_j and V_j of all threads have landed.
    // Write after read: no warp still reads K_(j-1), V_(j-1).
    __syncthreads();
    load_tile(j + Shape::STAGES - 1);

    // 3. S = Q K^T, and the softmax of its rows.
    const int key0 = begin + j * Shape::Bc + warp * Shape::KEYS;
    Scores S(0.0f);
    add_product(S, Q, K_smem(j).below(warp * Shape::KEYS).transposed());  // (6.1)
    S.each_at([&](float& s, int row, int col) {
      const int i = rows.query(row), key = key0 + col;
      s = first_key <= key && key < problem.visible_keys(i)
              ? problem.scale * s + bias(rows.b, rows.head(row), i, key)
              : -INFINITY;
    });
    const auto alpha = update_max(m, row_max(S), LOG2_E);                                   // (6.2)
    S.each([&](float& s, int r) { s = exp2_approx((s - zero_if_empty(m[r])) * LOG2_E); });  // (6.3)
    auto& P = S;  // in the same registers
    l = alpha * l + lane_sum(P);

    // 4. O = alpha O + P V.
    O.scale_rows(alpha);
    add_product(O, rounded<T>(P), V_smem(j).below(warp * Shape::KEYS).right());  // (6.4)
  }

  // 5. (6.5)  Each warp's O and L.
  const SharedMatrix<float> O_smem{reinterpret_cast<float*>(shared), Shape::WARPS * Shape::Br,
                                   Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> L_smem{O_smem.end(), Shape::WARPS, Shape::Br, Shape::Br};
  // Write after read: no warp still reads K and V, whose place they take; no copy is in flight.
  __syncthreads();
  l = row_sum<Scores>(l);
#pragma unroll
  for (int r = 0; r < O.ROWS; ++r) {
    const int row = 8 * r + lane / 4;
    if (lane % 4 == 0) L_smem(warp, row) = m[r] + logf(l[r]);  // no visible key: -inf
    const float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];   // and O = 0
#pragma unroll
    for (int n = 0; n < Shape::COL_FRAGMENTS; ++n) {
      const float* const two = &O.elements[0][n][2 * r];
      O_smem.as<float2>(warp * Shape::Br + row, 8 * n + fragment::c_col(lane, 0)) =
          make_float2(two[0] * inverse, two[1] * inverse);
    }
  }

  // 6. (K.3)  The split's O and L.
  // Read after write: O and L of all warps.
  __syncthreads();
  write_part<Shape::WARPS, Shape::Br, Shape::Width>(O_smem, L_smem, rows, problem.Nq, split,
                                                    part_O_all, part_L_all);
}

/// Calls f with the compiled sizes for a problem.
template <class F>
auto in_shape_for(const Problem& p, F f) {
  if (p.d <= 64) return f(DecodeShape<64, 4, 4, 2>{});
  if (p.d <= 128) return f(DecodeShape<128, 4, 2, 2>{});
  return f(DecodeShape<256, 2, 2, 3>{});
}

void forward(const Attention& a) {
  const Problem& p = a.problem;
  in_type_of(a, [&]<class T>(T) {
    in_shape_for(p, [&]<class Shape>(Shape) {
      const unsigned tiles =
          blocks_for(rows_of_group(p), Shape::Br) * static_cast<unsigned>(p.B * p.Hkv);
      const auto splits = static_cast<unsigned>(splits_of(p, a.tiles.Bc));
      const auto start = [&]<class Keys>(Keys keys) {
        launch("tensor_decode_split",
               {dim3(tiles, splits), dim3(Shape::THREADS), Shape::SHARED_BYTES},
               split_kernel<T, Shape, Keys>, p, keys, bias_of(a), view<const T>(a.Q),
               view<const T>(a.K), view<const T>(a.V), view<float>(a.workspace("part_O")),
               view<float>(a.workspace("part_L")), a.tiles.Bc);
      };
      a.ends.exists() ? start(Cache{view<const int>(a.ends), view<const int>(a.firsts),
                                    view<const int>(a.pages)})
                      : start(OfBatch{});
    });
    merge_splits<T>(a);
  });
}

std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) {
  return in_shape_for(p, [&]<class Shape>(Shape) { return split_choices<Shape>(p, limits); });
}

/// Also where a few heads have more queries and long keys: other kernels give each head a block,
/// and leave most SMs idle (H200, 16 heads, 32,768 keys, d = 64: 32 queries 2.6, 64 1.7 times as
/// fast).
bool is_fastest(const FullProblem& p, Pass pass) {
  const std::int64_t tiles = std::int64_t{p.B} * p.Hkv * blocks_for(rows_of_group(p), 16);
  const bool few_tiles = pass == Pass::forward && tiles <= 64 && p.Nk >= 8192 && p.d <= 128;
  return few_tiles || is_decode(p, pass);
}

const Variant variant = {
    .name = "decode",
    .idea = "few queries: keys split over blocks and merged, heads of a group as rows of one tile",
    .forward = forward,
    .workspace = [](const Problem& p, Pass) { return split_workspace(p, 16); },
    .refuse = refuse_splits,
    .tiles = tiles,
    .reads_cache = true,
    .dtypes = {Dtype::fp16, Dtype::bf16},
    .max_head_dim = 256,
    .row_multiple = 8,
    .takes = general_problem,
    .refuse_on = refuse_on,
    .fastest = is_fastest};

}  // namespace
}  // namespace flash::tensor_cores::forward_more_decode
