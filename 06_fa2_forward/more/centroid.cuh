// 06 FlashAttention-2, forward: the centroid as the output of hyperbolic attention
// (06_fa2_forward/more/hyperbolic.md).
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     x = (|Q_i - K_j|^2 - (q0 - k0)^2) / 2                 [Br, d] x [d, Bc]           (9.19)
//     S = -2 asinh(sqrt(x / 2)), masked                                                 (9.20)
//     m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))   with c = scale log2 e     (6.2)
//     P = 2^(c (S - m_new)),   l = alpha l + rowsum P                                   (6.3)
//     o0 = alpha o0 + P v0                                  [Br, Bc] x [Bc]             (9.25)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   n = the Lorentz norm of (o0, O);   O = O / n,   L = scale m + ln n  (9.25), (9.26)
//
// New since lorentz: V's rows are points, too.
// - Their time components v0 come with the tiles of K, and o0 is one more sum per row.
// - The Lorentz norm of the weighted sum, in which o0 counts positive, replaces the sum of the
//   weights l.
//
// Grid: Tr*B*H. Block: warps; a warp owns whole rows of S and O; its lanes form rows of 8 or 16.
// Shared memory: as lorentz, and v0 [Bc, 2].
// HBM: as lorentz. V once more, v0 written once, and read as often as V.  Workspace: q0, k0, v0.
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "06_fa2_forward/more/lorentz.cuh"
#include "06_fa2_forward/shapes.hpp"

namespace flash::fa2_forward::more_centroid {
namespace {

/// The shape of lorentz, with room for v0.
template <int Width, int Br, int Bc, int ThreadRows, int Lanes, int Blocks = 1>
struct ForwardShape : more_lorentz::ForwardShape<Width, Br, Bc, ThreadRows, Lanes, Blocks> {
  static constexpr int SHARED_FLOATS =
      more_lorentz::ForwardShape<Width, Br, Bc, ThreadRows, Lanes, Blocks>::SHARED_FLOATS + 2 * Bc;
};

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

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(ScoreRule rule, Tensor<const float> Q_all, Tensor<const float> K_all,
                   Tensor<const float> V_all, Tensor<const float> q0_all,
                   Tensor<const float> k0_all, Tensor<float> O_all, Tensor<float> L_all,
                   Tensor<const float> v0_all) {
  const Problem& problem = rule.problem;
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  // Heads vary fastest, so that all heads' longest tiles start first.
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
  const SharedMatrix<float> v0_smem{k0_smem.end(), Shape::Bc, 2, 2};
  const auto load_keys = [&](int key0) {
    load_async<Shape, Shape::Bc>(K_smem, K, key0);
    load_times<Shape, Shape::Bc>(k0_smem, k0, key0);
    load_times<Shape, Shape::Bc>(v0_smem, v0_all.head(b, problem.kv_head(h)), key0);
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
  Rows<O.ROWS> m(-INFINITY), l(0.0f), o0(0.0f);  // l, o0: over this lane's columns only
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
    const Rows<O.ROWS> alpha = update_max(m, row_max(S), power);           // (6.2)
    S.each([&](float& s, int r) { s = power(s - zero_if_empty(m[r])); });  // (6.3)  S becomes P
    auto& P = S;
    l = alpha * l + lane_sum(P);
    add_weighted_times(o0, alpha, P, v0_smem);
    O.scale_rows(alpha);

    cp_async_wait<0>();
    // Read after write: V_j of all threads has landed.
    // Write after read: no warp still reads K_j, k0, v0.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_keys(key0 + Shape::Bc);
    cp_async_commit();

#pragma unroll
    for (int col0 = 0; col0 < Shape::Bc; col0 += Shape::CHUNK) {
      // Write after read: slower lanes still read the previous chunk.
      if (col0 > 0) __syncwarp();
      store_transposed(Pt_smem, P, col0);
      // Read after write: a lane reads elements of P that other lanes of its warp have written.
      __syncwarp();
      const SharedMatrix<float> V_chunk{V_smem.data + col0 * Shape::Width, Shape::CHUNK,
                                        Shape::Width, Shape::Width};
      add_product(O, MnMajor{Pt_smem}, MnMajor{V_chunk});  // (6.4)
    }
  }

  // 3. (9.26)
  lorentz_norm(l, o0, O);
  write_output(O_all.head(b, h), L_all.head_vector(b, h), query0, O, m, l, rule.late_scale);
}

template <int... Sizes>
void start(ForwardShape<Sizes...>, const Attention& a) {
  using Shape = ForwardShape<Sizes...>;
  const Problem& p = a.problem;
  more_lorentz::launch_times(a.Q, a.workspace("q0"));
  more_lorentz::launch_times(a.K, a.workspace("k0"));
  more_lorentz::launch_times(a.V, a.workspace("v0"));
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_centroid", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)},
         forward_kernel<Shape>, score_rule(a), view<const float>(a.Q), view<const float>(a.K),
         view<const float>(a.V), view<const float>(a.workspace("q0")),
         view<const float>(a.workspace("k0")), view<float>(a.O), view<float>(a.L),
         view<const float>(a.workspace("v0")));
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> all = more_lorentz::workspace(p, pass);
  all.push_back({"v0", {p.B, p.Hkv, p.Nk, 2}});
  return all;
}

const Variant variant{
    .name = "centroid",
    .idea = "values as points of the hyperboloid: the Lorentz norm of the weighted sum replaces l",
    .forward = start_one_of<distance_shapes<ForwardShape>>,
    .workspace = workspace,
    .refuse = more_lorentz::refuse,
    .tiles = choices_of<distance_shapes<ForwardShape>>,
    .row_multiple = 4,
    .takes = general_problem | Features::lorentz | Features::centroid,
    .needs = Features::centroid,
    .only_if_fastest = true};

}  // namespace
}  // namespace flash::fa2_forward::more_centroid
