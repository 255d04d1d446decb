// 08 Tensor cores, backward, all steps, for Hopper too: what they loop over, tiles of queries with
// their L and D; and the kernels before and after a step's own: prepare_kernel computes D, and
// convert_kernel rounds dQ, if its sum is in HBM (all but step 1).
//
// dQ_accum [B, H, rows of L_and_D / 16][Width / 8][32 lanes][4 floats]: accumulators in the order
// of the lanes that hold them. A 16 x 8 fragment is 128 adjacent floats, so that a warp adds to 512
// adjacent bytes at a time; lane 4 g + t has (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
// Fragment query / 16 * (Width / 8) + col / 8 has (query, col).
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "common/machine/hopper.cuh"

#include <bit>

namespace flash::tensor_cores {
namespace {

/// The tensors of the pass, in HBM. L_and_D [B, H, 2, rows]: L of all queries, for the steps for
/// Hopper times log2(e), then D. Its rows are the queries, padded to a multiple of ROW_BLOCK.
template <class T>
struct BackwardTensors {
  Tensor<const T> Q, K, V, dO;
  Tensor<T> dQ, dK, dV;
  Tensor<const float> L_and_D;
};

// ---- The tiles of queries of a block -----------------------------------------------------------

/// A tile of queries of one head.
struct QueryTile {
  int h, query0;
};

/// The tiles that a block of keys from key0 on loops over: those with a query that sees any of
/// them, for all heads of a group. A group is the query heads that share a key/value head, and has
/// the index of that head.
template <int Br>
struct QueryLoop {
  int group, first_query, iterations;  // at least one iteration: the last query sees every key

  __device__ QueryLoop(const Problem& p, int kv_head, int key0)
      : group(kv_head),
        first_query(p.first_query(key0, Br)),
        iterations((p.Nq - first_query + Br - 1) / Br * p.group_size()) {}

  __device__ QueryTile first(const Problem& p) const {
    return {group * p.group_size(), first_query};
  }
  /// Incremental: dividing the iteration index would take 30 instructions.
  __device__ QueryTile after(const Problem& p, QueryTile at) const {
    return at.query0 + Br < p.Nq ? QueryTile{at.h, at.query0 + Br}
                                 : QueryTile{at.h + 1, first_query};
  }
};

/// L and D of a tile's queries in shared memory: a row each, as prepare() fills them in HBM. With
/// its LInPowersOf2, row 0 has L log2(e).
template <bool LInPowersOf2 = false>
struct QueryStats {
  SharedMatrix<float> rows;

  __device__ float L(int query) const requires(!LInPowersOf2) { return rows(0, query); }
  __device__ float L_log2(int query) const requires LInPowersOf2 { return rows(0, query); }
  __device__ float D(int query) const { return rows(1, query); }
};

/// (8.13)  dP becomes dS = P o (dP - D), transposed: rows are keys.
template <class Scores, bool LInPowersOf2>
__device__ void softmax_backward(Scores& dPt, const Scores& Pt,
                                 const QueryStats<LInPowersOf2>& stats) {
  dPt.each_at([&](float& dp, int, int query) { dp -= stats.D(query); });
  dPt.multiply(Pt);
}

// ---- Before a step -----------------------------------------------------------------------------

constexpr int PREPARE_THREADS = 256;
/// How many lanes share a query: one per 8 columns, and idle ones.
template <int Width>
constexpr int LANES_OF_ROW = static_cast<int>(std::bit_ceil(Width / 8u));
/// How many blocks prepare_kernel has for a head of so many rows.
template <int Width>
unsigned blocks_of_prepare(int rows) {
  return blocks_for(rows, PREPARE_THREADS / LANES_OF_ROW<Width>);
}

/// The head that a block works on, and the block's index among those of that head. Heads run from
/// last to first, since L2 keeps recent data: the step's kernel, which takes heads in order, begins
/// with what prepare_kernel has just cleared and ends with what convert_kernel reads next.
struct BlockOfHead {
  int blocks, head, index;  // head: counted over all batches

  __device__ explicit BlockOfHead(int heads) : blocks(gridDim.x / heads) {
    const int from_last = gridDim.x - 1 - blockIdx.x;
    head = from_last / blocks;
    index = from_last % blocks;
  }
};

/// D = rowsum(dO o O) of a lane's 8 columns.
template <class T>
__device__ float D_of_chunk(const Matrix<const T>& O, const Matrix<const T>& dO, int i, int col) {
  const uint4 O_chunk = O.template as<uint4>(i, col), dO_chunk = dO.template as<uint4>(i, col);
  const unsigned O_reg[4] = {O_chunk.x, O_chunk.y, O_chunk.z, O_chunk.w};
  const unsigned dO_reg[4] = {dO_chunk.x, dO_chunk.y, dO_chunk.z, dO_chunk.w};
  float D = 0.0f;
#pragma unroll
  for (int reg = 0; reg < 4; ++reg) {
    const float2 o = unpack<T>(O_reg[reg]), g = unpack<T>(dO_reg[reg]);
    D += o.x * g.x + o.y * g.y;
  }
  return D;
}

/// Clears the block's share of dQ_accum: as many elements as its rows have, since their order does
/// not matter here.
template <int Rows, int Width>
__device__ void clear_rows(const Matrix<float>& dQ_accum, int block) {
  for (int e = 4 * threadIdx.x; e < Rows * Width; e += 4 * PREPARE_THREADS) {
    store4(dQ_accum.address(0, block * Rows * Width + e), make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  }
}

/// Computes D and stores it next to L; a query that sees no key, or that only pads the last tile,
/// gets L = inf, which makes its P 0. Clears dQ_accum on demand.  Grid: B*H * blocks of a head.
/// NextIsEarly: the step's kernel may begin while this one ends.
template <class T, int Width, bool LInPowersOf2, bool NextIsEarly>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_kernel(Problem problem, Tensor<const T> O_all, Tensor<const T> dO_all,
                   Tensor<const float> L_all, Tensor<float> L_and_D_all, Tensor<float> dQ_accum_all,
                   bool clear_dQ_accum) {
  if constexpr (NextIsEarly) griddepcontrol_launch_dependents();
  constexpr int LANES = LANES_OF_ROW<Width>, ROWS = PREPARE_THREADS / LANES;
  static_assert(ROW_BLOCK % ROWS == 0, "blocks fill the padded rows of L, D and dQ_accum");
  const BlockOfHead block(problem.B * problem.H);
  const int b = block.head / problem.H, h = block.head % problem.H;
  const int i = block.index * ROWS + threadIdx.x / LANES, chunk = threadIdx.x % LANES,
            col = 8 * chunk;
  float D = 0.0f;
  if (i < problem.Nq && col < problem.d)
    D = D_of_chunk(O_all.head(b, h), dO_all.head(b, h), i, col);
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2)
    D += __shfl_xor_sync(ALL_LANES, D, distance);
  if (chunk == 0) {
    const Matrix<float> L_and_D = L_and_D_all.head(b, h);
    const float L = i < problem.Nq ? L_all.head_vector(b, h)(i) : -INFINITY;
    L_and_D(0, i) = L == -INFINITY ? INFINITY : LInPowersOf2 ? LOG2_E * L : L;
    L_and_D(1, i) = D;
  }
  if (clear_dQ_accum) clear_rows<ROWS, Width>(dQ_accum_all.head(b, h), block.index);
}

/// The tensors of the pass; prepare() fills L_and_D.
template <class T>
BackwardTensors<T> tensors_of(const Attention& a) {
  return {view<const T>(a.Q), view<const T>(a.K),
          view<const T>(a.V), view<const T>(a.dO),
          view<T>(a.dQ),      view<T>(a.dK),
          view<T>(a.dV),      view<const float>(a.workspace("LD"))};
}

/// L and D, before the step's kernel. LInPowersOf2: L log2(e) instead of L, for recompute_P_log2();
/// recompute_P() takes L. Clears `dQ_accum` unless it is null: then any tensor stands in its place.
template <class T, int Width, bool LInPowersOf2 = false, bool NextIsEarly = false>
BackwardTensors<T> prepare(const Attention& a, const TensorRef* dQ_accum) {
  const Problem& p = a.problem;
  const TensorRef& L_and_D = a.workspace("LD");
  const int rows = static_cast<int>(L_and_D.shape[3]);
  const unsigned blocks = blocks_of_prepare<Width>(rows) * static_cast<unsigned>(p.B * p.H);
  launch("prepare", {dim3(blocks), dim3(PREPARE_THREADS)},
         prepare_kernel<T, Width, LInPowersOf2, NextIsEarly>, p, view<const T>(a.O),
         view<const T>(a.dO), view<const float>(a.L), view<float>(L_and_D),
         view<float>(dQ_accum == nullptr ? L_and_D : *dQ_accum), dQ_accum != nullptr);
  return tensors_of<T>(a);
}

// ---- After it, with dQ_accum -------------------------------------------------------------------

/// One thread: dQ = scale dQ_accum, in 16 bits, in 8 columns, `chunk`, of rows g and g + 8 of the
/// 16 rows from row0 on. In dQ_accum they are neighbours, and the 16 rows are number `row_group`.
template <int Width, class T>
__device__ void convert_rows(const Matrix<T>& dQ, const Matrix<const float>& dQ_accum, float scale,
                             int row0, int row_group, int g, int chunk) {
  float rows[2][8];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const float4 held = dQ_accum.as<float4>(
        0, (row_group * Width / 8 + chunk) * 128 + (4 * g + t) * 4);  // by lane 4 g + t
    rows[0][2 * t] = scale * held.x;
    rows[0][2 * t + 1] = scale * held.y;
    rows[1][2 * t] = scale * held.z;
    rows[1][2 * t + 1] = scale * held.w;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = row0 + g + 8 * r;
    if (i >= dQ.rows) return;
    const float(&dq)[8] = rows[r];
    dQ.template as<uint4>(i, 8 * chunk) = make_uint4(pack<T>(dq[0], dq[1]), pack<T>(dq[2], dq[3]),
                                                     pack<T>(dq[4], dq[5]), pack<T>(dq[6], dq[7]));
  }
}

/// dQ, by convert_rows(). Early: it may begin while the step's kernel ends.  Grid: B*H * blocks of
/// a head.
template <class T, int Width, bool Early>
__global__ void __launch_bounds__(PREPARE_THREADS)
    convert_kernel(Problem problem, Tensor<const float> dQ_accum_all, Tensor<T> dQ_all) {
  constexpr int CHUNKS = Width / 8;
  const BlockOfHead block(problem.B * problem.H);
  const int b = block.head / problem.H, h = block.head % problem.H;
  const int index = block.index * PREPARE_THREADS + threadIdx.x;
  const int chunk = index % CHUNKS, g = index / CHUNKS % 8, row_group = index / CHUNKS / 8;
  if (16 * row_group + g >= problem.Nq || 8 * chunk >= problem.d) return;
  // Read after write: the step's kernel has added everything.
  if constexpr (Early) griddepcontrol_wait();
  convert_rows<Width>(dQ_all.head(b, h), dQ_accum_all.head(b, h), problem.scale, 16 * row_group,
                      row_group, g, chunk);
}

/// The number of its blocks for a head: a thread takes two rows of 8 columns.
inline unsigned blocks_of_convert(const Attention& a, int width) {
  return blocks_for(static_cast<int>(a.workspace("LD").shape[3]) / 2 * (width / 8),
                    PREPARE_THREADS);
}

template <class T, int Width, bool Early = false>
void convert(const Attention& a, const TensorRef& dQ_accum) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_of_convert(a, Width) * static_cast<unsigned>(p.B * p.H);
  launch("convert",
         {.grid = dim3(blocks), .block = dim3(PREPARE_THREADS), .shared_bytes = 0, .early = Early},
         convert_kernel<T, Width, Early>, p, view<const float>(dQ_accum), view<T>(a.dQ));
}

}  // namespace
}  // namespace flash::tensor_cores
