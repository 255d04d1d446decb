// 08 Tensor cores, backward, step 4: two halves of a block, one tile apart.
//
//   for every tile j of K, V (one block each), for every tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T + bias - L_i), masked         [Bc, d] x [d, Br]           (8.11)
//     dP^T = V_j dO_i^T                                      [Bc, d] x [d, Br]           (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O) from prepare_kernel          (8.13)
//     dV_j += P^T dO_i                                       [Bc, Br] x [Br, d]          (8.14)
//     dK_j += scale dS^T Q_i                                 [Bc, Br] x [Br, d]          (8.15)
//     dQ_i += scale dS K_j                                   [Br, Bc] x [Bc, d]          (8.16)
//
// New since step 3: the halves work on different tiles of Q, so that neither waits for the other within a tile.
//   half 0, tile i:      S^T = K Q^T,   P^T = e^(S^T - L)  -> shared memory,            dV += P^T dO
//   half 1, tile i - 1:  dP^T = V dO^T, dS^T = P^T o (dP^T - D) -> overwrites P^T,      dK += dS^T Q
//   all warps, tile i - 2:  dQ += dS K; half 1 before its other work and half 0 after it, so that not all wait at once
// In each iteration half 1 uses the P^T that half 0 stored in the previous one: one barrier per iteration orders everything,
// and while one half computes exponentials the other keeps the tensor cores busy. Three tiles are in progress at a time.
// The table of tile sizes was measured anew.
//
// Grid: Tc*B*Hkv, where a block loops over all query heads that share its key/value head.
// HBM: K, V once; Q, dO, L, D once per tile of K that they see; the sum of dQ cleared once, read and written once per tile of
//   K, and read once at the end; dQ, dK, dV once. Workspace: L and D; the sum of dQ.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts/prepare.cuh"
#include "08_tensor_cores/parts/tile.cuh"

namespace flash::tensor_cores::backward_4 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int Warps>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, THREADS = Warps * WARP, HALF_WARPS = Warps / 2;
  static constexpr int ROW_TILES = Bc / 16 / HALF_WARPS;  // of 16 rows of transposed scores, per warp
  static constexpr int QUERY_TILES = Br / 8;              // of 8 columns of transposed scores
  static constexpr int STAGES = 3, DS_STAGES = 3;         // tiles of Q and dO: one per half, and one in flight; of P and dS
  static constexpr int SHARED_ELEMENTS =
      Width * 2 * Bc + STAGES * (2 * Width * Br + 4 * Br) + DS_STAGES * Bc * Br;  // K, V; Q, dO, L and D; P or dS
  static constexpr WarpGrid DQ_WARPS{Warps, Br, Width};
  // With 128 elements of S or dP per lane, or 192 with the gradient, nvcc spills on sm_80.
  static constexpr bool SPILLS = ROW_TILES * QUERY_TILES >= 32 || ROW_TILES * (QUERY_TILES + Width / 8) >= 48;
  static constexpr int MIN_SM = SPILLS ? 90 : min_sm(2 * SHARED_ELEMENTS, false);

  static_assert(Bc % (16 * HALF_WARPS) == 0, "the warps of a half share the keys in sixteens");
  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and sum of dQ");
  static_assert(2 * THREADS >= Br, "load_LD() copies four elements per thread");
};

// P goes from half 0 to half 1 in left-operand order: a lane stores its four registers of each 16 x 16 block, and the same lane
// of half 1 reads them back, as one 16-byte access without bank conflicts. Row order, with 4-byte accesses, costs 2 %
// at d = 64.
template <class T, int RowTiles, int Depth>
__device__ void store_blocks(T* start, const InRegisters<T, RowTiles, Depth>& P) {
  constexpr int count = RowTiles * Depth;
  const SharedMatrix<T> blocks{start, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    const unsigned(&block)[4] = P.blocks_reg[index % Depth][index / Depth];
    blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP)) = make_uint4(block[0], block[1], block[2], block[3]);
  }
}

/// (8.13)  dS holds dP - D: multiplies it by P, as rounded for dV.
template <class T, int RowTiles, int ColTiles>
__device__ void multiply_by_blocks(Accumulators<RowTiles, ColTiles>& dS, T* start) {
  constexpr int depth = ColTiles / 2, count = RowTiles * depth;
  const SharedMatrix<const T> blocks{start, count, 8 * WARP, 8 * WARP};
#pragma unroll
  for (int index = 0; index < count; ++index) {
    const uint4 words = blocks.template as<uint4>(index, 8 * (threadIdx.x % WARP));
    const unsigned block[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float* const pair = &dS.elements[index / depth][index % depth * 2 + r / 2][r % 2 * 2];
      const float2 p = unpack<T>(block[r]);
      pair[0] *= p.x;
      pair[1] *= p.y;
    }
  }
}

/// Starts copying L and D for the queries from query0 on.
template <int Br>
__device__ void load_LD(const SharedMatrix<float>& LD_smem, const Matrix<const float>& LD, int query0) {
  const int which = threadIdx.x / (Br / 4), col = threadIdx.x % (Br / 4) * 4;
  if (which < 2) cp_async<16>(LD_smem.address(which, col), LD.address(which, query0 + col));
}

/// (8.16)  The warp's part of dQ = dS K [Br, d], added to the sum of dQ, a sequence of 16 x 8 fragments: 4 elements per lane.
template <class Shape, class T>
__device__ void add_to_dQ(const Matrix<float>& sum, int query0, const Tile<T, Shape::Br>& dS_smem,
                          const Tile<T, Shape::Width>& K_smem) {
  constexpr int row_tiles = Shape::Br / 16 / Shape::DQ_WARPS.rows, col_tiles = Shape::Width / 8 / Shape::DQ_WARPS.cols;
  const int warp = threadIdx.x / WARP, warp_row = warp % Shape::DQ_WARPS.rows * 16 * row_tiles;
  const int warp_col = warp / Shape::DQ_WARPS.rows * 8 * col_tiles;
  if (warp_col >= Shape::Width) return;  // Width 96: some warps have no part
  Accumulators<row_tiles, col_tiles> dQ(0.0f);
  add_product(dQ, dS_smem.template left_transposed<Shape::Bc>(warp_row), K_smem.right(warp_col));
  const auto first =
      sum.address(0, 4 * (((query0 + warp_row) / 16 * (Shape::Width / 8) + warp_col / 8) * WARP + threadIdx.x % WARP));
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int n = 0; n < col_tiles; ++n) {
      const float(&dq)[4] = dQ.elements[i][n];
      atomic_add4(first + 4 * (i * Shape::Width / 8 + n) * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(ScoreRule rule, BackwardTensors<T> all, Tensor<float> sum_all, int heads_at_once) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // this architecture is too old: never launched
  const Problem& problem = rule.problem;
  // The first keys, visible to the most queries under a causal mask, start first.
  const BlockOrder order((problem.Nk + Shape::Bc - 1) / Shape::Bc, problem.B * problem.Hkv, heads_at_once);
  const int key0 = order.tile * Shape::Bc, b = order.head / problem.Hkv, h_kv = order.head % problem.Hkv;

  T* const shared = dynamic_shared<T>(Shape::SHARED_ELEMENTS);
  const auto KV_smem = [&](int which) {  // 0: K, 1: V; then tiles of Q, of dO, of P or dS, of L and D
    return Tile<T, Shape::Width>(shared + which * Shape::Bc * Shape::Width, Shape::Bc);
  };
  const auto QdO_smem = [&](int which, int tile) {  // 0: Q, 1: dO
    const int buffer = which * Shape::STAGES + tile % Shape::STAGES;
    return Tile<T, Shape::Width>(KV_smem(2).elements.data + buffer * Shape::Br * Shape::Width, Shape::Br);
  };
  T* const dS_start = KV_smem(2).elements.data + 2 * Shape::STAGES * Shape::Br * Shape::Width;
  const auto dS_smem = [&](int tile) {  // transposed, as it is computed; at first it holds P
    return Tile<T, Shape::Br>(dS_start + tile % Shape::DS_STAGES * Shape::Bc * Shape::Br, Shape::Bc);
  };
  const auto LD_smem = [&](int tile) {
    float* const start = reinterpret_cast<float*>(dS_start + Shape::DS_STAGES * Shape::Bc * Shape::Br);
    return SharedMatrix<float>{start + tile % Shape::STAGES * 2 * Shape::Br, 2, Shape::Br, Shape::Br};
  };
  const int half = threadIdx.x / WARP / Shape::HALF_WARPS;
  const int warp_row = threadIdx.x / WARP % Shape::HALF_WARPS * 16 * Shape::ROW_TILES;  // the warp's first row of the tile

  Accumulators<Shape::ROW_TILES, Shape::Width / 8> gradient(0.0f);  // half 0: dV; half 1: dK without the scale

  // The tiles of Q, starting at the first query that sees a key of this tile, for every query head that shares the key/value
  // head. There is at least one: the last query sees every key.
  const int first_query = (problem.causal ? max(0, key0 - (problem.Nk - problem.Nq)) / Shape::Br : 0) * Shape::Br;
  const int tiles = (problem.Nq - first_query + Shape::Br - 1) / Shape::Br * problem.group_size();
  struct QueryTile {
    int h, query0;
  };
  // Updated incrementally: dividing the index of the tile would take 30 instructions, in three places.
  const auto next = [&](QueryTile at) {
    return at.query0 + Shape::Br < problem.Nq ? QueryTile{at.h, at.query0 + Shape::Br} : QueryTile{at.h + 1, first_query};
  };
  const auto load_tile = [&](int tile, QueryTile at) {
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.Q.head(b, at.h), at.query0).load_async(QdO_smem(0, tile));
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(all.dO.head(b, at.h), at.query0).load_async(QdO_smem(1, tile));
    load_LD<Shape::Br>(LD_smem(tile), all.LD.head(b, at.h), at.query0);
  };
  // The tile at the front, where half 0 computes P, and the tile at the back, two iterations behind, which is added to dQ.
  QueryTile front{h_kv * problem.group_size(), first_query}, back = front;
  const auto sum_dQ = [&](int tile) {
    if (tile >= 0) add_to_dQ<Shape>(sum_all.head(b, back.h), back.query0, dS_smem(tile), KV_smem(0));
  };

  // 1. K, V, and the first tiles of Q, dO.
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.K.head(b, h_kv), key0).load_async(KV_smem(0));
  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS>(all.V.head(b, h_kv), key0).load_async(KV_smem(1));
  load_tile(0, front);

  for (int iteration = 0; iteration < tiles + 2; ++iteration) {
    cp_async_wait_all();
    __syncthreads();  // read after write: tiles, P and dS have arrived; write after read: no warp still reads the oldest stage
    if (iteration + 1 < tiles) load_tile(iteration + 1, next(front));

    if (half == 1) sum_dQ(iteration - 2);  // 2. Half 1: dQ += dS K.
    const int tile = iteration - half;     // half 1 is one tile behind
    if (tile >= 0 && tile < tiles) {
      // 3. Half 0: P^T. Half 1: dS^T, which overwrites it.
      const SharedMatrix<const float> LD = LD_smem(tile);
      const auto dS_rows = dS_smem(tile).below(warp_row);                               // the warp's rows
      Accumulators<Shape::ROW_TILES, Shape::QUERY_TILES> S(0.0f);                       // transposed: [16 ROW_TILES, Br]
      add_product(S, KV_smem(half).left(warp_row), QdO_smem(half, tile).transposed());  // (8.11), (8.12)
      if (half == 0) {
        rule.apply<true>(S, b * problem.H + front.h, front.query0, key0 + warp_row);
        exponentiate(S, LD, rule);
      } else {
        S.each_at([&](float& ds, int, int query) { ds -= LD(1, query); });  // (8.13)
        multiply_by_blocks(S, dS_rows.elements.data);
        __syncwarp();  // write after read: dS overwrites blocks of P that other lanes have read
      }
      const InRegisters<T, Shape::ROW_TILES, Shape::QUERY_TILES / 2> P_or_dS(S);  // once, for the tile and the product
      if (half == 0) {
        store_blocks(dS_rows.elements.data, P_or_dS);
      } else {
        store(dS_rows, S);
      }

      // 4. Half 0: dV += P^T dO (8.14). Half 1: dK += dS^T Q (8.15).
      add_product(gradient, P_or_dS, QdO_smem(1 - half, tile).right());
    }
    if (half == 0) sum_dQ(iteration - 2);  // 5. Half 0: dQ += dS K.
    front = next(front);
    if (iteration >= 2) back = next(back);
  }
  __syncthreads();  // write after read: the gradients are staged in the tiles of V and K, which all warps have finished reading
  gradient.each([&](float& x, int) { x *= half == 0 ? 1.0f : problem.scale; });
  write_rows(half == 0 ? all.dV.head(b, h_kv) : all.dK.head(b, h_kv), key0 + warp_row, gradient,
             KV_smem(1 - half).below(warp_row));
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& sum = a.workspace("sum_dQ");
    const BackwardTensors<T> all = prepare<T, Shape::Width>(a, &sum);
    const int kv_heads = p.B * p.Hkv, tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc));
    const int in_L2 = heads_in_L2(kv_heads, std::int64_t{p.Nq} * p.group_size() * Shape::Width * (2 + 2 + 4));
    launch("backward",
           {dim3(static_cast<unsigned>(tiles * kv_heads)), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           backward_kernel<T, Shape>, score_rule(a), all, view<float>(sum), std::max(in_L2, heads_in_a_wave(a, tiles)));
    convert<T, Shape::Width>(a, sum);
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return compiled_shape<BackwardShape<Sizes...>>(why, start<BackwardShape<Sizes...>>, speed);
}

// Fastest first per width; speeds as measured with --tune on an H200.
constexpr CompiledShape shapes[] = {
    compiled<32, 128, 128, 8>("32 keys a warp"),           compiled<32, 64, 128, 8>("fits the registers of sm_80"),
    compiled<32, 64, 64, 8>("little shared memory"),       compiled<64, 128, 128, 8>("half the barriers"),
    compiled<64, 64, 128, 8>("32 keys a warp", 0.89),      compiled<64, 64, 64, 8>("little shared memory", 0.63),
    compiled<64, 32, 64, 8>("least shared memory", 0.55),  compiled<96, 64, 128, 8>("32 keys a warp"),
    compiled<96, 32, 128, 8>("less shared memory"),        compiled<96, 32, 64, 8>("little shared memory"),
    compiled<96, 16, 64, 8>("least shared memory"),        compiled<128, 64, 128, 8>("32 keys a warp"),
    compiled<128, 32, 128, 8>("less shared memory", 0.82), compiled<128, 32, 64, 8>("little shared memory", 0.58),
    compiled<128, 16, 64, 8>("least shared memory", 0.43), compiled<256, 32, 64, 8>("16 keys a warp"),
    compiled<256, 16, 64, 8>("less shared memory"),        compiled<256, 16, 32, 4>("little shared memory"),
};

const Variant variant = backward_step<shapes, true>("staggered", "two halves of a block, one tile apart");

}  // namespace
}  // namespace flash::tensor_cores::backward_4
