// 07 FlashAttention-2, backward: the parts that all steps share, in addition to the tiles and
// operands of 06.
//
// Tiles have the same layout in shared memory as in HBM. The products need them in both directions:
// along the row in S and dP, where one float4 holds four steps of the inner dimension, and down the
// column in dV and dK, where it holds four columns.
#pragma once

#include "06_fa2_forward/operands.cuh"
#include "common/parts/compiled_shapes.hpp"

namespace flash::fa2_backward {
namespace {

using fa2_forward::mask, fa2_forward::add_product, fa2_forward::KMajor, fa2_forward::MnMajor,
    fa2_forward::load_async, fa2_forward::ThreadTile, fa2_forward::write_tile;

constexpr int PREPARE_WARPS = 8;  // of a block of prepare_kernel

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
/// On a first read take Halves = 1, and skip SCORE_RUN and all that follows, down to SharedTiles.
/// Halves: from step 2 on 2, each with one product of a pair; in step 1 one, with both products.
/// Warps: of a half, which divide the rows of a product.
///   tile           elements per thread                        lanes per row   runs, rows x columns
///   Scores         SCORE_ROWS x Bc / ScoreLanes               ScoreLanes      SCORE_RUN x 1
///   KeyGradient    KEY_ROWS x Width / KeyLanes                KeyLanes        4 x 4
///   QueryGradient  QUERY_ROWS x Width / Halves / QUERY_LANES  QUERY_LANES     1 x 4
template <int Width_, int Br_, int Bc_, int ScoreLanes, int KeyLanes, int Warps = 4, int Halves = 2>
struct BackwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int HALF_THREADS = Warps * WARP, THREADS = Halves * HALF_THREADS;
  static constexpr int QUERY_LANES = Width % 64 == 0 ? 8 : 4;  // per row of a half's columns of dQ
  static constexpr int SCORE_ROWS = Br * ScoreLanes / HALF_THREADS;
  static constexpr int KEY_ROWS = Bc * KeyLanes / HALF_THREADS;
  static constexpr int QUERY_ROWS = Br * QUERY_LANES / HALF_THREADS;
  static constexpr int SCORE_RUN = SCORE_ROWS < ScoreLanes / 4 ? SCORE_ROWS : ScoreLanes / 4;
  // S, P or dP, dS: [Br, Bc]
  using Scores = ThreadTile<SCORE_ROWS, Bc / ScoreLanes, ScoreLanes, Warps, SCORE_RUN>;
  // dV or dK: [Bc, Width]
  using KeyGradient = ThreadTile<KEY_ROWS, Width / KeyLanes, KeyLanes, Warps, 4, 4>;
  // dQ, or from step 2 on the columns of a half: [Br, Width / Halves]
  using QueryGradient =
      ThreadTile<QUERY_ROWS, Width / Halves / QUERY_LANES, QUERY_LANES, Warps, 1, 4>;

  // STRIDE: each row of a tile starts 4 banks after the previous row, so that 8 lanes that read 16
  // bytes each of 8 rows hit all 32 banks once.
  // P_STRIDE: a store writes 32 / ScoreLanes rows, SCORE_RUN apart, of ScoreLanes floats each:
  // SCORE_RUN * P_STRIDE = ScoreLanes (mod 32), so they tile the banks (07, section 4). Example
  // <64, 64, 128, 16, 8>: rows 0 and 4, 4 * 132 = 528 floats apart, begin in banks 0 and 16.
  static constexpr int STRIDE = Width + 4, P_STRIDE = Bc + ScoreLanes / SCORE_RUN;
  static constexpr int SHARED_FLOATS = (2 * Bc + 2 * Br) * STRIDE + 2 * Br * P_STRIDE + 2 * Br;

  static_assert(Bc % 32 == 0 && P_STRIDE % 4 == 0,
                "rows of P and dS begin ScoreLanes / SCORE_RUN banks apart, and are float4");
  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == Bc && SCORE_ROWS >= 1,
                "S is dealt out evenly");
  static_assert(KeyGradient::HEIGHT == Bc && KeyGradient::WIDTH == Width,
                "dK, dV are dealt out evenly, in fours");
  static_assert(QueryGradient::HEIGHT == Br && QueryGradient::WIDTH == Width / Halves,
                "dQ is dealt out evenly, in fours of columns");
};

template <class Shape>
constexpr ThreadPart held_by_a_thread[] = {
    fa2_forward::part_of<typename Shape::Scores>("S"),
    fa2_forward::part_of<typename Shape::KeyGradient>("dK"),
    fa2_forward::part_of<typename Shape::QueryGradient>("dQ")};

/// One line of a table of sizes (shapes.hpp). start() stands in the file that has the Shape.
/// speed: as in CompiledShape.
template <class Shape>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  return {.width = Shape::Width,
          .tiles = {Shape::Br, Shape::Bc},
          .threads = Shape::THREADS,
          .shared_bytes = Shape::SHARED_FLOATS * sizeof(float),
          .min_sm = 75,
          .why = why,
          .start = [](const Attention& a) { start(Shape{}, a); },
          .thread = held_by_a_thread<Shape>,
          .speed = speed};
}

/// Shared memory of a block.
struct SharedTiles {
  SharedMatrix<float> K, V;   // [Bc, Width]
  SharedMatrix<float> Q, dO;  // [Br, Width]
  SharedMatrix<float> P, dS;  // [Br, Bc]
  float *L, *D;               // [Br]
};

template <class Shape>
__device__ SharedTiles shared_tiles() {
  float* next = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const auto take = [&](int rows, int cols, int stride) {
    const SharedMatrix<float> tile{next, rows, cols, stride};
    next += rows * stride;
    return tile;
  };
  const auto of_keys = [&] { return take(Shape::Bc, Shape::Width, Shape::STRIDE); };
  const auto of_queries = [&] { return take(Shape::Br, Shape::Width, Shape::STRIDE); };
  const auto of_pairs = [&] { return take(Shape::Br, Shape::Bc, Shape::P_STRIDE); };
  const auto stats_of_rows = [&] { return take(Shape::Br, 1, 1).data; };
  return {.K = of_keys(),
          .V = of_keys(),
          .Q = of_queries(),
          .dO = of_queries(),
          .P = of_pairs(),
          .dS = of_pairs(),
          .L = stats_of_rows(),
          .D = stats_of_rows()};
}

/// What the kernels read and write in HBM.
struct Tensors {
  Tensor<const float> Q, K, V, dO;  // [B, H or Hkv, Nq or Nk, d]
  Tensor<const float> L, D;         // [B, H, Nq, 1]
  Tensor<float> dQ, dK, dV;
};

/// Starts copying the tiles of Q, dO, L and D that begin at query0.
template <class Shape>
__device__ void load_queries(const SharedTiles& smem, const Tensors& hbm, int b, int h,
                             int query0) {
  load_async<Shape, Shape::Br>(smem.Q, hbm.Q.head(b, h), query0);
  load_async<Shape, Shape::Br>(smem.dO, hbm.dO.head(b, h), query0);
  static_assert(Shape::Br <= Shape::THREADS, "a thread copies a row's L and D");
  const int row = threadIdx.x;
  if (row >= Shape::Br) return;
  const Vector<const float> L = hbm.L.head_vector(b, h), D = hbm.D.head_vector(b, h);
  if (query0 + row < L.size) {
    cp_async<4>(&smem.L[row], L.address(query0 + row));
    cp_async<4>(&smem.D[row], D.address(query0 + row));
  } else {  // beyond the last query P = 0: an infinite one would turn dO = 0 into NaN
    smem.L[row] = INFINITY;
    smem.D[row] = 0.0f;
  }
}

/// The values of the thread's rows.
template <class Tile>
__device__ Rows<Tile::ROWS> of_rows(const float* elements) {
  Rows<Tile::ROWS> rows(0.0f);
  return rows.each([&](float& x, int r) { x = elements[Tile::row(r)]; });
}

/// (7.1)  S becomes P = e^(S - L), also in shared memory. `scale` is still to be multiplied into S.
/// log2(e) multiplies the difference: scale S and L may be large, and rounding their products with
/// log2(e) would lose digits.
template <class Tile>
__device__ void store_P(const SharedTiles& smem, Tile& S, float scale) {
  const Rows<Tile::ROWS> L = of_rows<Tile>(smem.L);
  S.each([&](float& s, int r) { s = exp2_approx((scale * s - zero_if_empty(L[r])) * LOG2_E); });
  S.each_at([&](float p, int row, int col) { smem.P(row, col) = p; });
}

/// (7.3)  dS = P o (dP - D), to shared memory.
template <class Tile>
__device__ void store_dS(const SharedTiles& smem, Tile& dP) {
  const Rows<Tile::ROWS> D = of_rows<Tile>(smem.D);
  dP.each([&](float& dp, int r) { dp -= D[r]; });
  dP.each_at([&](float difference, int row, int col) {
    smem.dS(row, col) = smem.P(row, col) * difference;
  });
}

/// (7.3)  D = rowsum(dO o O), one warp per query. clear_dQ: sets dQ to 0, for kernels that add to
/// it.  Grid: (queries / warps per block) * B*H.
__global__ void __launch_bounds__(PREPARE_WARPS* WARP)
    prepare_kernel(Problem problem, Tensor<const float> O_all, Tensor<const float> dO_all,
                   Tensor<float> D_all, Tensor<float> dQ_all, bool clear_dQ) {
  const int heads = problem.B * problem.H;
  const int b = blockIdx.x % heads / problem.H, h = blockIdx.x % heads % problem.H;
  const int i = blockIdx.x / heads * PREPARE_WARPS + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  if (i >= problem.Nq) return;  // the whole warp leaves
  const Matrix<const float> O = O_all.head(b, h), dO = dO_all.head(b, h);
  const Matrix<float> dQ = dQ_all.head(b, h);
  float sum = 0.0f;
  for (int c = lane; c < problem.d; c += WARP) {
    sum += O(i, c) * dO(i, c);
    if (clear_dQ) dQ(i, c) = 0.0f;
  }
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(ALL_LANES, sum, distance);
  if (lane == 0) D_all.head_vector(b, h)(i) = sum;
}

// ---- launch ------------------------------------------------------------------------------------

/// Computes D; runs before the other kernels.
void launch_prepare(const Attention& a, bool clear_dQ) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, PREPARE_WARPS) * static_cast<unsigned>(p.B * p.H);
  launch("prepare", {dim3(blocks), dim3(PREPARE_WARPS * WARP)}, prepare_kernel, p,
         view<const float>(a.O), view<const float>(a.dO), view<float>(a.workspace("D")),
         view<float>(a.dQ), clear_dQ);
}

Tensors tensors_of(const Attention& a) {
  return {view<const float>(a.Q),  view<const float>(a.K), view<const float>(a.V),
          view<const float>(a.dO), view<const float>(a.L), view<const float>(a.workspace("D")),
          view<float>(a.dQ),       view<float>(a.dK),      view<float>(a.dV)};
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  if (pass == Pass::forward) return {};
  return {{"D", {p.B, p.H, p.Nq, 1}}};
}

/// The grids: prepare has a block for every 8 queries, dk_dv and the one kernel for at least every
/// 32 keys, dq for every 16 queries.
std::string refuse(const Problem& p) {
  const std::string queries = refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, PREPARE_WARPS);
  return queries.empty() ? refuse_row_of_blocks(std::int64_t{p.B} * p.Hkv, p.Nk, 32) : queries;
}

/// A step of the ladder, for the plain problem alone. add_stage() knows its forward pass.
template <const auto& shapes>
Variant plain_step(const char* name, const char* idea, bool atomic_dQ = false) {
  return {.name = name,
          .idea = idea,
          .backward = start_one_of<shapes>,
          .workspace = workspace,
          .refuse = refuse,
          .tiles = choices_of<shapes>,
          .atomic_dQ = atomic_dQ,
          .row_multiple = 4,
          .takes = plain_problem};
}

}  // namespace
}  // namespace flash::fa2_backward
