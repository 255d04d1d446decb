// 06 FlashAttention-2, forward, step 5: vector operands.
//
//   for every tile i of Q (one block each), for every tile j of K, V that it sees:
//     S = scale Q_i K_j^T + bias, masked                    [Br, d] x [d, Bc]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                 (6.2)
//     P = e^(S - m_new),   l = alpha l + rowsum P                                       (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = m + ln l                                                           (6.5)
//
// New since step 4: one float4 load fetches four elements of an operand that step 4 reads one by one. In each step of the
// inner dimension a thread needs 8 elements of a column of Q or P. Q and P are therefore stored transposed, and a thread owns
// rows, and columns of O, in runs of four: two loads fetch all 8. K is read along its rows, where a float4 holds four steps.
// On average, a step of an 8 x 8 product takes 4 loads for 64 multiply-adds.
//
// Grid: Tr*B*H. Block: warps; a warp owns whole rows of S and O; its lanes form a grid of 4 rows of 8.
// Shared memory: Q_i^T [Width, Br], K_j, V_j [Bc, Width], P^T [Bc, Br]; rows of K and P^T padded.
// HBM: as step 1 (6.6).
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "06_fa2_forward/thread_tiles.cuh"

namespace flash::fa2_forward::step_5 {
namespace {

constexpr int LANES = 8;  // per row
// Eight lanes read 16 bytes each from 8 rows of K, or write them to 8 rows of P^T. With 4 floats of padding, rows start 4 banks
// apart: the eight accesses hit all 32 banks once.
constexpr int PAD = 4;

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int ThreadRows>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int WARPS = Br / (ThreadRows * (WARP / LANES)), THREADS = WARPS * WARP;
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Br + PAD;
  static constexpr int SHARED_FLOATS = Width * Br + Bc * (STRIDE + Width + P_STRIDE);
  using Scores = ThreadTile<ThreadRows, Bc / LANES, LANES, WARPS, 4>;        // S, then P: [Br, Bc]
  using Output = ThreadTile<ThreadRows, Width / LANES, LANES, WARPS, 4, 4>;  // O: [Br, Width]

  static_assert(Scores::HEIGHT == Br && Scores::WIDTH == Bc && Output::WIDTH == Width, "tiles are dealt out evenly");
  static_assert(Br % 32 == 0 && Width % 32 == 0, "PAD assumes rows of whole 32 banks");
};

/// Starts copying rows row0, row0 + 1, ... of M to a tile [Height, Width], with zeros beyond M's last row and column. A thread
/// keeps to its four columns, so that its addresses advance by a constant, which is worth 9 % (logbook of chapter 06).
template <class Shape, int Height>
__device__ void load_async(const SharedMatrix<float>& tile, const Matrix<const float>& M, int row0, bool aligned) {
  constexpr int vectors = Shape::Width / 4, rows_at_once = Shape::THREADS / vectors;
  constexpr int steps = (Height + rows_at_once - 1) / rows_at_once;
  const int first = threadIdx.x / vectors, col = 4 * (threadIdx.x % vectors);
  if (first >= rows_at_once) return;  // Width 96: some threads have nothing to copy
  if (aligned && row0 + Height <= M.rows) {
    const bool exists = col < M.cols;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = first + step * rows_at_once;
      if (Height % rows_at_once != 0 && row >= Height) break;
      cp_async_zfill<16>(tile.address(row, col), M.address(row0 + row, exists ? col : 0), exists ? 16 : 0);
    }
  } else {  // the last rows, or rows without 16-byte alignment: element by element
#pragma unroll 1
    for (int row = first; row < Height; row += rows_at_once) {
#pragma unroll 1
      for (int c = col; c < col + 4; ++c) {
        const bool exists = row0 + row < M.rows && c < M.cols;
        cp_async_zfill<4>(tile.address(row, c), M.address(exists ? row0 + row : 0, exists ? c : 0), exists ? 4 : 0);
      }
    }
  }
}

/// Loads Q_i^T. A warp reads a column of Q, whose sectors stay in L1 until the next columns are read, and writes a row of Q^T.
template <class Shape>
__device__ void load_transposed(const SharedMatrix<float>& Qt, const Matrix<const float>& Q, int row0) {
#pragma unroll 8  // loads in flight
  for (int e = threadIdx.x; e < Shape::Br * Shape::Width; e += Shape::THREADS) {
    const int row = e % Shape::Br, k = e / Shape::Br;
    Qt(k, row) = row0 + row < Q.rows && k < Q.cols ? Q(row0 + row, k) : 0.0f;
  }
}

/// Stores P^T, with one access per run of four rows.
template <class Tile>
__device__ void store_transposed(const SharedMatrix<float>& Pt, const Tile& P) {
#pragma unroll
  for (int c = 0; c < Tile::COLS; ++c) {
#pragma unroll
    for (int r = 0; r < Tile::ROWS; r += 4) {
      Pt.as<float4>(P.col(c), P.row(r)) =
          make_float4(P.elements[r][c], P.elements[r + 1][c], P.elements[r + 2][c], P.elements[r + 3][c]);
    }
  }
}

/// An operand whose rows run along the inner dimension k, in CUTLASS's terms K-major: a float4 holds four steps of one row.
struct KMajor {
  static constexpr int K_PER_LOAD = 4;  // steps of the inner dimension
  SharedMatrix<float> tile;
  __device__ int depth() const { return tile.cols; }
  template <int N, class Index>
  __device__ void load(float (&elements)[K_PER_LOAD][N], int k, Index index) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float4 four = tile.as<const float4>(index(i), k);
      elements[0][i] = four.x;
      elements[1][i] = four.y;
      elements[2][i] = four.z;
      elements[3][i] = four.w;
    }
  }
};

/// An operand whose columns run along the inner dimension, MN-major: a float4 holds one step of four columns.
struct MnMajor {
  static constexpr int K_PER_LOAD = 1;  // steps of the inner dimension
  SharedMatrix<float> tile;
  __device__ int depth() const { return tile.rows; }
  template <int N, class Index>
  __device__ void load(float (&elements)[K_PER_LOAD][N], int k, Index index) const {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 four = tile.as<const float4>(k, index(i));
      elements[0][i] = four.x;
      elements[0][i + 1] = four.y;
      elements[0][i + 2] = four.z;
      elements[0][i + 3] = four.w;
    }
  }
};

/// C += A B, as a sum of outer products over the inner dimension. In each step k a thread needs ROWS elements of A and COLS of
/// B. A load fetches them for one step or for four, so a round of the loop takes as many steps as the longer of the two loads.
/// So many steps are unrolled that loads start long before they are needed:
///   A x B                 steps per round   rounds unrolled   steps
///   MN x K    S = Q K^T          4               8             32
///   MN x MN   O += P V           1              16             16
///   K x MN    dQ += dS K         4               4             16
///   K x K     S, dP in 07        4               2              8
template <class Tile, class Left, class Right>
__device__ void add_product(Tile& C, const Left& A, const Right& B) {
  constexpr int a_steps = Left::K_PER_LOAD, b_steps = Right::K_PER_LOAD, steps = a_steps > b_steps ? a_steps : b_steps;
#pragma unroll((b_steps == 1 ? 16 : 8) / a_steps)
  for (int k0 = 0; k0 < A.depth(); k0 += steps) {
    float a[a_steps][Tile::ROWS], b[b_steps][Tile::COLS];
#pragma unroll
    for (int k = 0; k < steps; ++k) {
      // Each operand is loaded again when the steps of its last load are used up.
      if (k % a_steps == 0) A.load(a, k0 + k, Tile::row);
      if (k % b_steps == 0) B.load(b, k0 + k, Tile::col);
      C.add_outer_product(a[k % a_steps], b[k % b_steps]);
    }
  }
}

/// (6.2)  m = max(m, largest). Returns alpha = e^(m_old - m), the factor that rescales sums over the old P.
template <int N>
__device__ Rows<N> update_max(Rows<N>& m, const Rows<N>& largest) {
  Rows<N> alpha(0.0f);
#pragma unroll
  for (int r = 0; r < N; ++r) {
    const float m_new = fmaxf(m[r], largest[r]);
    alpha[r] = expf(m[r] - zero_if_empty(m_new));
    m[r] = m_new;
  }
  return alpha;
}

template <class Shape>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all, Tensor<const float> V_all, Bias bias,
                   Tensor<float> O_all, Tensor<float> L_all, bool aligned) {
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int h = blockIdx.x / Tr % problem.H, b = blockIdx.x / Tr / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(Shape::SHARED_FLOATS);
  const SharedMatrix<float> Qt_smem{shared, Shape::Width, Shape::Br, Shape::Br};
  const SharedMatrix<float> K_smem{Qt_smem.data + Shape::Width * Shape::Br, Shape::Bc, Shape::Width, Shape::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.data + Shape::Bc * Shape::STRIDE, Shape::Bc, Shape::Width, Shape::Width};
  const SharedMatrix<float> Pt_smem{V_smem.data + Shape::Bc * Shape::Width, Shape::Bc, Shape::Br, Shape::P_STRIDE};

  // 1. The first tile of K and the tile of Q; O = 0, l = 0, m = -inf.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);  // by the last row
  if (key_end > 0) load_async<Shape, Shape::Bc>(K_smem, K, 0, aligned);
  cp_async_commit();
  load_transposed<Shape>(Qt_smem, Q_all.head(b, h), query0);
  typename Shape::Output O(0.0f);      // not normalised
  Rows<O.ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only

  // 2. The tiles of K and V, up to the last key visible to the last row of this tile.
  for (int key0 = 0; key0 < key_end; key0 += Shape::Bc) {
    cp_async_wait<0>();
    // Read after write: K_j and Q of all threads have landed.
    // Write after read: no warp still reads V_(j-1), and no lane P_(j-1).
    __syncthreads();
    load_async<Shape, Shape::Bc>(V_smem, V, key0, aligned);
    cp_async_commit();

    typename Shape::Scores S(0.0f);
    add_product(S, MnMajor{Qt_smem}, KMajor{K_smem});
    S.each_at([&](float& s, int row, int col) {  // (6.1); pairs beyond the edges are masked too
      s = query0 + row < problem.Nq && key0 + col < problem.Nk ? score(problem, bias, b, h, query0 + row, key0 + col, s)
                                                               : -INFINITY;
    });
    const Rows<O.ROWS> alpha = update_max(m, row_max(S));  // (6.2)
    // (6.3)  S becomes P.
    S.each([&](float& s, int r) { s = expf(s - zero_if_empty(m[r])); });
    auto& P = S;
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    cp_async_wait<0>();
    // Read after write: V_j of all threads has landed.
    // Write after read: no warp still reads K_j.
    __syncthreads();
    if (key0 + Shape::Bc < key_end) load_async<Shape, Shape::Bc>(K_smem, K, key0 + Shape::Bc, aligned);
    cp_async_commit();

    store_transposed(Pt_smem, P);
    // Read after write: a lane reads elements of P that other lanes of its warp have written.
    __syncwarp();
    add_product(O, MnMajor{Pt_smem}, MnMajor{V_smem});  // (6.4)
  }

  // 3. (6.5)
  write_output(O_all.head(b, h), L_all.head_vector(b, h), query0, O, m, l, aligned);
}

template <class Shape>
void start(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_forward", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_FLOATS * sizeof(float)}, forward_kernel<Shape>, p,
         view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), bias_of(a), view<float>(a.O), view<float>(a.L),
         rows_are_aligned({a.Q, a.K, a.V, a.O}));
}

template <class Shape>
constexpr CompiledShape compiled(const char* why) {
  return compiled_shape<Shape>(why, start<Shape>);
}

// Width, Br, Bc, rows per thread.
constexpr CompiledShape shapes[] = {
    compiled<ForwardShape<32, 128, 64, 8>>("8 x 8 scores a thread"),
    compiled<ForwardShape<32, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<ForwardShape<64, 128, 64, 8>>("8 x 8 scores and outputs a thread"),
    compiled<ForwardShape<64, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<ForwardShape<96, 64, 64, 4>>("4 x 8 scores and 4 x 12 outputs a thread"),
    compiled<ForwardShape<96, 32, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<ForwardShape<128, 64, 32, 4>>("4 x 4 scores and 4 x 16 outputs a thread"),
    compiled<ForwardShape<128, 32, 32, 4>>("twice as many blocks, little shared memory"),
};

std::string refuse(const Problem& p) { return refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, 32); }

const Variant variant{.name = "vector_operands",
                      .idea = "float4 for every operand: Q and P transposed",
                      .forward = start_one_of<shapes>,
                      .refuse = refuse,
                      .tiles = choices_of<shapes>};

}  // namespace
}  // namespace flash::fa2_forward::step_5
