// 06 FlashAttention-2, forward: minus the distance on the hyperboloid as the score
// (06_fa2_forward/more/hyperbolic.md).
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     x = (|Q_i - K_j|^2 - (q0 - k0)^2) / 2                 [Br, d] x [d, Bc]           (9.19)
//     S = -2 asinh(sqrt(x / 2)), masked                                                 (9.20)
//     m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))   with c = scale log2 e     (6.2)
//     P = 2^(c (S - m_new)),   l = alpha l + rowsum P                                   (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = scale m + ln l                                                     (6.5)
//
// New since tuned:
// - The product sums squares of differences instead, so that near points keep their digits
//   (distances.cuh).
// - A kernel computes the time components q0 and k0 first, each in two floats. They come with the
//   tiles of Q and K.
//
// Grid, shapes: as step 1. Block: as tuned. Shared memory: as tuned, and q0 [Br, 2], k0 [Bc, 2].
// HBM: as step 1 (6.6). Q and K once more, q0 and k0 written once, and read as often as Q and K.
//   Workspace: q0, k0.
#pragma once

#include "06_fa2_forward/more/distances.cuh"
#include "06_fa2_forward/shapes.hpp"
#include "common/parts/score_rule.cuh"

namespace flash::fa2_forward::more_lorentz {
namespace {

constexpr int TIME_WARPS = 8;

/// (9.18)  Each row's time component in two floats: what fp32 keeps of it, and what it rounds away.
/// A warp per row.
/// Grid: (rows / warps per block) * heads.
__global__ void __launch_bounds__(TIME_WARPS* WARP)
    time_kernel(Tensor<const float> rows_all, Tensor<float> times_all) {
  const int heads = rows_all.batches * rows_all.heads;
  const int b = blockIdx.x % heads / rows_all.heads, h = blockIdx.x % heads % rows_all.heads;
  const int row = blockIdx.x / heads * TIME_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows_all.rows) return;  // the whole warp leaves
  const Matrix<const float> rows = rows_all.head(b, h);
  double square = 0.0;
  for (int c = lane; c < rows.cols; c += WARP) {
    const double x = rows(row, c);
    square += x * x;
  }
#pragma unroll
  for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
    square += __shfl_xor_sync(ALL_LANES, square, lanes);
  const double time = sqrt(1.0 + square);
  const float first = static_cast<float>(time);
  if (lane == 0)
    times_all.head(b, h).as<float2>(row, 0) = make_float2(first, static_cast<float>(time - first));
}

constexpr int PAD = 4;  // as in tuned

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up. Lanes:
/// per row. Blocks: how many per SM the compiler leaves registers for (__launch_bounds__).
template <int Width_, int Br_, int Bc_, int ThreadRows, int Lanes, int Blocks = 1>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, LANES = Lanes, BLOCKS = Blocks;
  static constexpr int CHUNK = Bc < 64 ? Bc : 64;  // keys of P in shared memory at a time
  static constexpr int WARPS = Br / (ThreadRows * (WARP / LANES)), THREADS = WARPS * WARP;
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Br + PAD;
  static constexpr int SHARED_FLOATS =
      Width * Br + Bc * (STRIDE + Width) + CHUNK * P_STRIDE + 2 * (Br + Bc);
  using Scores = ThreadTile<ThreadRows, Bc / LANES, LANES, WARPS, 4>;        // S, then P: [Br, Bc]
  using Output = ThreadTile<ThreadRows, Width / LANES, LANES, WARPS, 4, 4>;  // O: [Br, Width]

  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == Bc && Output::WIDTH == Width,
                "tiles are dealt out evenly");
  static_assert(Bc % CHUNK == 0 && Width % 32 == 0,
                "whole chunks; PAD assumes rows of whole 32 banks");
};

// ---- Where values are points, too (centroid.cuh) -----------------------------------------------

/// (9.25)  o0 = alpha o0 + P v0, over this lane's columns. Nothing is subtracted from v0: its first
/// float is enough.
template <class Tile>
__device__ void add_weighted_times(Rows<Tile::ROWS>& o0, const Rows<Tile::ROWS>& alpha,
                                   const Tile& P, const SharedMatrix<float>& v0_smem) {
  o0 = alpha * o0;
#pragma unroll
  for (int c = 0; c < Tile::COLS; ++c) {
    const float v0 = time_of(v0_smem, Tile::col(c)).x;
#pragma unroll
    for (int r = 0; r < Tile::ROWS; ++r) o0[r] += P.elements[r][c] * v0;
  }
}

/// (9.25), (9.27)  The sum of the weights in l becomes the Lorentz norm of the weighted sum (o0,
/// O), in the first lane of a row, since write_output() adds up what its lanes have. The norm is at
/// least that sum, whatever is left of a difference of rounded numbers.
template <class Tile>
__device__ void lorentz_norm(Rows<Tile::ROWS>& l, Rows<Tile::ROWS> o0, const Tile& O) {
  Rows<Tile::ROWS> square(0.0f);
  O.each([&](float o, int r) { square[r] += o * o; });
  l = row_sum<Tile>(l), o0 = row_sum<Tile>(o0), square = row_sum<Tile>(square);
  l.each([&](float& sum, int r) {
    const float length = sqrtf(square[r]);
    sum = sqrtf(fmaxf(sum * sum, (o0[r] - length) * (o0[r] + length)));
  });
  if (Tile::col(0) != 0) l = Rows<Tile::ROWS>(0.0f);
}

// ---- The kernel --------------------------------------------------------------------------------

/// v0_all: the time components of V where values are points; else no argument, and (f(v0_all), ...)
/// calls nothing.
template <class Shape, class... ValueTimes>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(ScoreRule rule, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<const float> q0_all,
                   Tensor<const float> k0_all, Tensor<float> O_all, Tensor<float> L_all,
                   ValueTimes... v0_all) {
  constexpr bool VALUES_ARE_POINTS = sizeof...(ValueTimes) > 0;
  const Problem& problem = rule.problem;
  // Heads vary fastest, so that all heads' longest tiles start first.
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  const int tile = problem.causal ? Tr - 1 - blockIdx.x / heads : blockIdx.x / heads;
  const int query0 = tile * Shape::Br;
  const int head = blockIdx.x % heads, h = head % problem.H, b = head / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h)),
                            V = V_all.head(b, problem.kv_head(h)),
                            k0 = k0_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Qt_smem{shared, Shape::Width, Shape::Br, Shape::Br};
  const SharedMatrix<float> K_smem{Qt_smem.end(), Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.end(), Shape::Bc, Shape::Width, Shape::Width};
  const SharedMatrix<float> Pt_smem{V_smem.end(), Shape::CHUNK, Shape::Br, Shape::P_STRIDE};
  const SharedMatrix<float> q0_smem{Pt_smem.end(), Shape::Br, 2, 2};
  const SharedMatrix<float> k0_smem{q0_smem.end(), Shape::Bc, 2, 2};
  const SharedMatrix<float> v0_smem{k0_smem.end(), Shape::Bc, 2, 2};  // if values are points
  const auto load_keys = [&](int key0) {
    load_async<Shape, Shape::Bc>(K_smem, K, key0);
    load_times<Shape, Shape::Bc>(k0_smem, k0, key0);
    (load_times<Shape, Shape::Bc>(v0_smem, v0_all.head(b, problem.kv_head(h)), key0), ...);
  };

  // 1. The first tile of K and the tile of Q; O = 0, l = 0, m = -inf.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  if (key_end > 0) {
    load_keys(0);
    load_times<Shape, Shape::Br>(q0_smem, q0_all.head(b, h), query0);
  }
  cp_async_commit();
  load_transposed<Shape>(Qt_smem, Q_all.head(b, h), query0);
  typename Shape::Output O(0.0f);                // not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f), o0(0.0f);  // l, o0 (of points): over this lane's columns
  const float scale_log2 = rule.late_scale * LOG2_E;
  const auto power = [=](float x) { return exp2_approx(x * scale_log2); };

  // 2. The tiles of K and V, up to the last key visible to the last row of this tile.
  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    cp_async_wait<0>();
    // Read after write: K_j, k0, v0, Q and q0 of all threads have landed.
    // Write after read: no warp still reads V_(j-1), and no lane P_(j-1).
    __syncthreads();
    load_async<Shape, Shape::Bc>(V_smem, V, key0);
    cp_async_commit();

    typename Shape::Scores S(0.0f);
    add_squares(S, MnMajor{Qt_smem}, KMajor{K_smem});
    subtract_times(S, q0_smem, k0_smem);              // (9.19)
    S.each([](float& s, int) { s = -distance(s); });  // (9.20)
    rule.apply(S, head, query0, key0);  // the mask; scale and bias if they cannot wait
    const Rows<O.ROWS> alpha = update_max(m, row_max(S), power);  // (6.2)
    // (6.3)  S becomes P.
    S.each([&](float& s, int r) { s = power(s - zero_if_empty(m[r])); });
    auto& P = S;
    l = alpha * l + lane_sum(P);
    if constexpr (VALUES_ARE_POINTS) add_weighted_times(o0, alpha, P, v0_smem);
    O.scale_rows(alpha);

    cp_async_wait<0>();
    // Read after write: V_j of all threads has landed.
    // Write after read: no warp still reads K_j, k0, v0.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_keys(key0 + Shape::Bc);
    cp_async_commit();

#pragma unroll
    for (int col0 = 0; col0 < Shape::Bc; col0 += Shape::CHUNK) {
      // Write after read: slower lanes of the warp still multiply the previous chunk of P.
      if (col0 > 0) __syncwarp();
      store_transposed(Pt_smem, P, col0);
      // Read after write: a lane reads rows of P, which the other lanes of its warp alone store.
      __syncwarp();
      const SharedMatrix<float> V_chunk{V_smem.data + col0 * Shape::Width, Shape::CHUNK,
                                        Shape::Width, Shape::Width};
      add_product(O, MnMajor{Pt_smem}, MnMajor{V_chunk});  // (6.4)
    }
  }

  // 3. (6.5), (9.26)
  if constexpr (VALUES_ARE_POINTS) lorentz_norm(l, o0, O);
  write_output(O_all.head(b, h), L_all.head_vector(b, h), query0, O, m, l, rule.late_scale);
}

/// Computes the time components of a tensor's rows; runs before the other kernel.
void launch_times(const TensorRef& rows, const TensorRef& times) {
  const unsigned blocks = blocks_for(static_cast<int>(rows.shape[2]), TIME_WARPS);
  launch("time",
         {dim3(blocks * static_cast<unsigned>(rows.shape[0] * rows.shape[1])),
          dim3(TIME_WARPS * WARP)},
         time_kernel, view<const float>(rows), view<float>(times));
}

/// Launches the kernels; centroid.cuh has launched time_kernel for v0 before.
template <class Shape, class... ValueTimes>
void launch_forward(const char* name, const Attention& a, ValueTimes... v0) {
  const Problem& p = a.problem;
  launch_times(a.Q, a.workspace("q0"));
  launch_times(a.K, a.workspace("k0"));
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch(name, {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         forward_kernel<Shape, ValueTimes...>, score_rule(a), view<const float>(a.Q),
         view<const float>(a.K), view<const float>(a.V), view<const float>(a.workspace("q0")),
         view<const float>(a.workspace("k0")), view<float>(a.O), view<float>(a.L), v0...);
}

template <class Shape>
void start(Shape, const Attention& a) {
  launch_forward<Shape>("fa2_lorentz", a);
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass) {
  return {{"q0", {p.B, p.H, p.Nq, 2}}, {"k0", {p.B, p.Hkv, p.Nk, 2}}};
}

std::string refuse(const Problem& p) {
  const std::string queries = refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, TIME_WARPS);
  return queries.empty() ? refuse_row_of_blocks(std::int64_t{p.B} * p.Hkv, p.Nk, TIME_WARPS)
                         : queries;
}

const Variant variant{
    .name = "lorentz",
    .idea =
        "distances on the hyperboloid as scores: sums of squared differences, less those in time",
    .forward = start_one_of<distance_shapes<ForwardShape>>,
    .workspace = workspace,
    .refuse = refuse,
    .tiles = choices_of<distance_shapes<ForwardShape>>,
    .row_multiple = 4,
    .takes = general_problem | Features::lorentz,
    .needs = Features::lorentz};

}  // namespace
}  // namespace flash::fa2_forward::more_lorentz
