// 06 FlashAttention-2: operands that a product reads four elements at a time, from step 6 on and in
// stage 07, and how Q and P get into shared memory as such operands.
#pragma once

#include "06_fa2_forward/thread_tile.cuh"

namespace flash::fa2_forward {
namespace {

/// Loads Q_i^T. A warp reads a column of Q, whose sectors stay in L1 until the next
/// columns are read, and writes a row of Q^T.
template <class Shape>
__device__ void load_transposed(const SharedMatrix<float>& Qt, const Matrix<const float>& Q,
                                int row0) {
#pragma unroll 8  // loads in flight
  for (int e = threadIdx.x; e < Shape::Br * Shape::Width; e += Shape::THREADS) {
    const int row = e % Shape::Br, k = e / Shape::Br;
    Qt(k, row) = row0 + row < Q.rows && k < Q.cols ? Q(row0 + row, k) : 0.0f;
  }
}

/// Stores P^T, with one access per run of four rows. Step 8 stores it in chunks: as
/// many columns as Pt has rows, from col0 on.
template <class Tile>
__device__ void store_transposed(const SharedMatrix<float>& Pt, const Tile& P, int col0 = 0) {
  static_assert(Tile::ROW_RUN == 4, "a thread has four neighbouring rows");
#pragma unroll
  for (int c = 0; c < Tile::COLS; ++c) {
    // The lanes' c-th columns are the LANES keys from c LANES on: in one chunk, as LANES divides
    // it.
    if (c * Tile::LANES / Pt.rows != col0 / Pt.rows) continue;
#pragma unroll
    for (int r = 0; r < Tile::ROWS; r += 4) {
      Pt.as<float4>(P.col(c) - col0, P.row(r)) = make_float4(
          P.elements[r][c], P.elements[r + 1][c], P.elements[r + 2][c], P.elements[r + 3][c]);
    }
  }
}

/// An operand whose rows run along the inner dimension k, in CUTLASS's terms K-major: a float4
/// holds four steps of one row.
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

/// An operand whose columns run along the inner dimension, MN-major: a float4 holds one step of
/// four columns.
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

/// C += A B, as a sum of outer products over the inner dimension. In each step k a thread needs
/// ROWS elements of A and COLS of B. A load fetches them for one step or for four, so a round of
/// the loop takes as many steps as the longer of the two loads. So many steps are unrolled that
/// loads start long before they are needed:
///   A x B                 steps per round   rounds unrolled   steps
///   MN x K    S = Q K^T          4               8             32
///   MN x MN   O += P V           1              16             16
///   K x MN    dQ += dS K         4               4             16
///   K x K     S, dP in 07        4               2              8
template <class Tile, class Left, class Right>
__device__ void add_product(Tile& C, const Left& A, const Right& B) {
  constexpr int a_steps = Left::K_PER_LOAD, b_steps = Right::K_PER_LOAD;
  constexpr int steps = a_steps > b_steps ? a_steps : b_steps;
  static_assert((a_steps == 4 || Tile::ROW_RUN == 4) && (b_steps == 4 || Tile::COL_RUN == 4),
                "MnMajor loads four neighbouring rows of A, or columns of B");
#pragma unroll((b_steps == 1 ? 16 : 8) / a_steps)  // the rounds above, chosen by timing
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

}  // namespace
}  // namespace flash::fa2_forward
