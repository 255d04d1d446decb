// 08 Tensor cores, forward, step 1: the products as mma.sync, everything else as plain as can be.
//
//   S = scale Q_i K_j^T, masked                            [Br, d] x [d, Bc]           (6.1)
//   m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                  (6.2)
//   P = e^(S - m_new),   l = alpha l + rowsum P                                        (6.3)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = m + ln l                                              (6.5)
//
// New since chapter 06:
// - Q, K, V, P and O are fp16 or bf16. Products accumulate in fp32; S, m, l and O stay fp32 until
//   the end; P is rounded before P V.
// - A warp multiplies a 16 x 16 by a 16 x 8 matrix with one instruction. Its operands and results
//   are distributed over the lanes: results as described in parts/accumulators.cuh (read it first),
//   operands word by word as in Left, Right and Transposed below.
//
// Grid: Tr*B*H. Block: warps; a warp owns 16 ROW_FRAGMENTS rows of S and O; a row is shared by the
// 4 lanes of a quad.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
//
// Map of this folder: steps 1 to 10 in their order, each by its diff to the one before; 10 is the
// fastest. shapes.hpp has their tile sizes, more/ has decoding, and the kernel for biases, any
// scale and options. In ../parts
//   accumulators.cuh   first: a matrix in a warp's registers, add_product(), write_rows()
//   epilogue.cuh       O / l and L; mask.cuh: the mask
//   tile.cuh           from step 2 on: swizzled tiles; ldmatrix.cuh, from step 6 on addresses.cuh:
//                      what loads their operands
//   softmax.cuh        from step 5 on: the softmax by powers of 2
//   launch.cuh         last: the order of blocks, what a Variant says
#pragma once

#include "08_tensor_cores/forward/shapes.hpp"
#include "08_tensor_cores/parts/accumulators.cuh"
#include "08_tensor_cores/parts/epilogue.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/mask.cuh"

namespace flash::tensor_cores::forward_1 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Pad = 8>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;  // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8;        // of 8 columns of S
  static constexpr int COL_FRAGMENTS = Width / 8;     // of 8 columns of O
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = 2;  // per SM (occupancy); they share its registers
  static constexpr int PAD = Pad;   // elements at the end of each row of a tile; 0 in a test
  // Q, K, V and P.
  static constexpr int SHARED_ELEMENTS = (Width + Pad) * (Br + 2 * Bc) + (Bc + Pad) * Br;
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2 && Width >= 64);

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 32 == 0,
                "whole fragments");
};

/// A tile as left operand A: a register holds two neighbours in a row.
template <class Tile>
struct Left {
  using T = typename Tile::T;
  static constexpr int DEPTH = Tile::WIDTH / 16;
  Tile tile;

  __device__ void load(unsigned (&A)[4], int i, int k) const {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      A[reg] = tile.template as<unsigned>(16 * i + fragment::a_row(lane, reg),
                                          16 * k + fragment::a_col(lane, reg));
    }
  }
};

// A block of B, 16 x 16, is two 16 x 8 fragments side by side: reg / 2 is the fragment, reg % 2 its
// register, which holds two neighbours in a column: rows 2 t and 2 t + 1, or 2 t + 8 and 2 t + 9,
// with t = lane % 4.

/// The transpose of a tile as right operand B: neighbours in a column of K^T are neighbours in a
/// row of K, one register.
template <class Tile>
struct Transposed {
  Tile tile;

  __device__ void load(unsigned (&B)[4], int j, int k) const {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      B[reg] = tile.template as<unsigned>(16 * j + reg / 2 * 8 + fragment::b_col(lane),
                                          16 * k + fragment::b_row(lane, reg % 2));
    }
  }
};

/// A tile as right operand B: neighbours in a column of V are in different rows, so a register
/// takes two reads.
template <class Tile>
struct Right {
  Tile tile;

  __device__ void load(unsigned (&B)[4], int j, int k) const {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      const int row = 16 * k + fragment::b_row(lane, reg % 2),
                col = 16 * j + reg / 2 * 8 + fragment::b_col(lane);
      const unsigned short first = tile.template as<unsigned short>(row, col);
      const unsigned short second = tile.template as<unsigned short>(row + 1, col);
      B[reg] = first | static_cast<unsigned>(second) << 16;
    }
  }
};

/// A tile [rows, Width] of T in shared memory. A row starts 4 banks after the previous one (12
/// where Width is 16, 20 where it is 32 or 96): the 8 rows of 4 words that a warp reads at once are
/// in 32 different banks.
template <class T_, int Width, int Pad>
struct Tile {
  using T = T_;
  static constexpr int WIDTH = Width, STRIDE = Width + Pad;
  SharedMatrix<T> elements;

  __device__ Tile(T* start, int rows) : elements{start, rows, Width, STRIDE} {}
  __device__ T* end() const { return elements.data + elements.rows * STRIDE; }
  __device__ Tile below(int row) const {
    return {elements.data + row * STRIDE, elements.rows - row};
  }

  /// Neighbouring elements of a row, as one access.
  template <class Wide>
  __device__ decltype(auto) as(int row, int col) const {
    return elements.template as<Wide>(row, col);
  }

  __device__ Left<Tile> left() const { return {*this}; }
  __device__ Right<Tile> right() const { return {*this}; }
  __device__ Transposed<Tile> transposed() const { return {*this}; }
};

/// Copies rows row0, row0 + 1, ... of M to a tile, a chunk of 16 bytes at a time, with zeros beyond
/// the last row and column.
template <class Shape, class T>
__device__ void load(const Tile<T, Shape::Width, Shape::PAD>& tile, const Matrix<const T>& M,
                     int row0) {
  constexpr unsigned chunks = Shape::Width / 8;
  // opaque(): otherwise the compiler spills addresses.
  const unsigned first = opaque(threadIdx.x), end = tile.elements.rows * chunks;
  for (unsigned index = first; index < end; index += Shape::THREADS) {
    const int row = index / chunks, col = index % chunks * 8;
    uint4 chunk = make_uint4(0, 0, 0, 0);
    if (row0 + row < M.rows && col < M.cols) chunk = M.template as<uint4>(row0 + row, col);
    tile.template as<uint4>(row, col) = chunk;
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(Problem problem, Tensor<const T> Q_all, Tensor<const T> K_all,
                   Tensor<const T> V_all, Tensor<T> O_all, Tensor<float> L_all) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // too old: never launched
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int b = blockIdx.x / Tr / problem.H, h = blockIdx.x / Tr % problem.H;
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h)),
                        V = V_all.head(b, problem.kv_head(h));

  const Tile<T, Shape::Width, Shape::PAD> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS),
                                                 Shape::Br);
  const Tile<T, Shape::Width, Shape::PAD> K_smem(Q_smem.end(), Shape::Bc),
      V_smem(K_smem.end(), Shape::Bc);
  const Tile<T, Shape::Bc, Shape::PAD> P_smem(V_smem.end(), Shape::Br);
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row
  const auto Q_rows = Q_smem.below(warp_row);
  const auto P_rows = P_smem.below(warp_row);

  using Output = Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS>;
  Output O(0.0f);                            // [16 ROW_FRAGMENTS, Width], not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  // No row of the tile sees keys from key_end on.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  const int visible_tiles = (key_end + Shape::Bc - 1) / Shape::Bc;
  if (visible_tiles == 0)
    return write_empty<Shape>(O_all.head(b, h), L_all.head_vector(b, h), query0);

  // 1. Q.
  load<Shape>(Q_smem, Q_all.head(b, h), query0);

  for (int j = 0; j < visible_tiles; ++j) {
    // 2. K and V.
    const int key0 = j * Shape::Bc;
    // Write after read: no warp still reads the previous K and V.
    if (j > 0) __syncthreads();
    load<Shape>(K_smem, K, key0);
    load<Shape>(V_smem, V, key0);
    // Read after write: K, V and Q of all threads have arrived.
    __syncthreads();

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S(0.0f);  // [16 ROW_FRAGMENTS, Bc]
    add_product(S, Q_rows.left(), K_smem.transposed());                // (6.1)
    S.each([&](float& s, int) { s *= problem.scale; });
    mask(S, problem, query0 + warp_row, key0);
    const auto alpha = update_max(m, row_max(S), expf);                   // (6.2)
    S.each([&](float& s, int r) { s = expf(s - zero_if_empty(m[r])); });  // (6.3)
    auto& P = S;                                                          // in the same registers
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    // 4. O += P V. P goes through shared memory to become an operand. No barrier is needed:
    // accumulators are distributed like operands, so a lane reads exactly the words that it wrote.
    // (Step 4 exploits this.)
    store(P_rows, P);
    add_product(O, P_rows.left(), V_smem.right());  // (6.4)
  }
  write_output(O, m, l, /*scale=*/1.0f, O_all.head(b, h), L_all.head_vector(b, h),
               query0 + warp_row, Q_rows);  // (6.5)
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const unsigned blocks = blocks_for(p.Nq, Shape::Br) * static_cast<unsigned>(p.B * p.H);
    launch("tensor_mma", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, p, view<const T>(a.Q), view<const T>(a.K), view<const T>(a.V),
           view<T>(a.O), view<float>(a.L));
  });
}

const Variant variant = plain_step<mma_shapes<ForwardShape>>(
    "mma", "the products as mma.sync, operands read word by word from padded rows");

}  // namespace
}  // namespace flash::tensor_cores::forward_1
