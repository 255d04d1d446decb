// 08 Tensor cores, backward: tiles in shared memory, who works on which part of them, and how they get there.
#pragma once

#include "08_tensor_cores/parts.cuh"

namespace flash::tensor_cores {
namespace {

constexpr int STAGES = 3;       // tiles of Q and dO at a time: the two that the halves work on, and one on its way
constexpr int ROW_BLOCK = 128;  // every Br divides it: L, D and the sum of dQ have whole tiles of rows

// ---- Tiles in shared memory -------------------------------------------------------------------------------------------------------------
//
// Rows of Width numbers without padding; chunks of 8 numbers are swizzled: chunk c of row r lies in place c ^ swizzle of its row.

/// Chunks that change places with each other: a row of 128 bytes begins where the one before began and needs 8 places; two rows of 64 (or
/// 192) bytes lie side by side in the banks, 4 rows of 32.
template <int Width>
constexpr int PLACES = Width % 64 == 0   ? 8
                       : Width % 32 == 0 ? 4
                                         : 2;

template <int Width>
__device__ int chunk_address(unsigned row, unsigned chunk) {
  const unsigned swizzle = row / (8 / PLACES<Width>) % PLACES<Width>;
  return static_cast<int>(row * 2 * Width + (chunk ^ swizzle) * 16);
}

/// `address` lies in the first chunk of a row, or, if `chunks` is even, in the second one: the address as many chunks to the right.
/// Counted in bytes; with unit = 4 in words.
template <int Width>
__device__ int to_the_right(int address, int chunks, int unit = 16) {
  constexpr int G = PLACES<Width>;
  return (address ^ chunks % G * unit) + chunks / G * G * unit;
}

/// The chunk of the first 16 x 16 numbers of a tile that this lane gives to ldmatrix_x4, if its four matrices come one below the other
/// first: an A operand; with _trans two B operands side by side.
template <int Width>
__device__ int down_first(unsigned lane) {
  return chunk_address<Width>(lane % 16, lane / 16);
}

/// The same if the four matrices come side by side first: two B operands of a transposed tile; with _trans a transposed A operand.
template <int Width>
__device__ int right_first(unsigned lane) {
  return chunk_address<Width>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// Shared memory that a block can have. A kernel that needs more than any GPU of an architecture has is left empty there: it is never
// started, and compiling it for that architecture would be in vain.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int MOST_SHARED_BYTES = 64 << 10;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int MOST_SHARED_BYTES = 163 << 10;
#else
constexpr int MOST_SHARED_BYTES = 227 << 10;
#endif

/// The tile sizes of one compiled kernel, and who holds what. Width: d, rounded up.
template <class T_, int Width_, int Br_, int Bc_, int Warps>
struct Shape {
  using T = T_;
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, THREADS = Warps * WARP, HALF = Warps / 2;
  static constexpr int KEYS = Bc / HALF;  // of a warp
  static constexpr int MT = KEYS / 16, NT = Br / 8, KT = Br / 16, DT = Width / 8;
  static constexpr int ROW = 2 * Width, Q_BYTES = Br * ROW, K_BYTES = Bc * ROW, P_BYTES = 2 * Br * Bc, LD_BYTES = 8 * Br;
  // Addresses. P and dS: [Bc, Br], transposed as they are computed.
  static constexpr int K = 0, V = K + K_BYTES, Q = V + K_BYTES, dO = Q + STAGES * Q_BYTES, P = dO + STAGES * Q_BYTES,
                       LD = P + STAGES * P_BYTES, SHARED_BYTES = LD + STAGES * LD_BYTES;

  static_assert(MT >= 1 && MT * 16 * HALF == Bc, "the warps of a half share the keys in sixteens");
  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and sum of dQ");
};

/// What a thread works on.
template <class C>
struct Role {
  int lane = threadIdx.x % WARP;
  int half = threadIdx.x / WARP / C::HALF;
  int warp = threadIdx.x / WARP % C::HALF;  // of the half
  // Addresses within a tile of rows of Width numbers, which this lane gives to ldmatrix.
  int down = opaque(down_first<C::Width>(lane));
  int right = opaque(right_first<C::Width>(lane));

  __device__ int key(int m, int e) const { return warp * C::KEYS + 16 * m + lane / 4 + e / 2 * 8; }  // row of c[m][.][e]
  __device__ int query(int n, int e) const { return 8 * n + lane % 4 * 2 + e % 2; }                  // column of c[.][n][e]
  __device__ int col(int n) const { return query(n, 0); }                                            // the same of a gradient
};

/// Which tile of keys of which head a block works on. Blocks start in the order of their numbers: heads in groups that share L2; within
/// a group the first keys, which under a causal mask most queries see, start first.
template <class C>
struct Work {
  int b, h_kv, col0;

  __device__ Work(const Problem& problem, int heads_at_once, int block) {
    const int Tc = (problem.Nk + C::Bc - 1) / C::Bc, heads = problem.B * problem.Hkv;
    const int group = block / (heads_at_once * Tc) * heads_at_once, in_group = block % (heads_at_once * Tc);
    const int size = min(heads_at_once, heads - group);  // the last group may be smaller
    const int head = group + in_group % size;
    b = head / problem.Hkv;
    h_kv = head % problem.Hkv;
    col0 = in_group / size * C::Bc;
  }
};

// ---- Copies -----------------------------------------------------------------------------------------------------------------------------

/// Zeros in the columns beyond the last one of M of `rows` rows from `to` on. Tiles keep them, since load_tile() does not touch them.
template <class C>
__device__ void clear_columns(unsigned char* shared, int to, int rows, int cols) {
  const int chunks = C::Width / 8, first = cols / 8, missing = chunks - first;
  for (int e = threadIdx.x; e < rows * missing; e += C::THREADS) {
    const int at = to + chunk_address<C::Width>(e / missing, first + e % missing);
    *reinterpret_cast<uint4*>(shared + at) = make_uint4(0, 0, 0, 0);
  }
}

/// Starts copying rows row0, row0 + 1, ... of M to the tile at `to`; zeros stand beyond its last row. A thread stays in its chunk of
/// the row and, where it can, goes down in steps of a multiple of 8 rows: then its place within the swizzle stays the same.
template <class C, int Rows>
__device__ void load_tile(unsigned char* shared, int to, const Matrix<const typename C::T>& M, int row0) {
  constexpr int chunks = C::Width / 8, fit = C::THREADS / chunks, at_once = fit < 8 ? fit : fit / 8 * 8;
  constexpr int steps = (Rows + at_once - 1) / at_once;
  const int chunk = threadIdx.x % chunks, first = threadIdx.x / chunks, col = opaque(8 * chunk);
  if (chunks * at_once != C::THREADS && first >= at_once) return;  // Width 96: some threads have nothing to copy
  if (col >= M.cols) return;
  if (row0 + Rows <= M.rows) {  // the usual case, without further questions
    const int place = to + chunk_address<C::Width>(first, chunk);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = first + step * at_once;
      if (Rows % at_once != 0 && row >= Rows) break;
      const int there = at_once % 8 == 0 ? place + step * at_once * C::ROW : to + chunk_address<C::Width>(row, chunk);
      cp_async<16>(shared + there, M.address(row0 + row, col));
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < Rows; row += at_once) {
    const bool exists = row0 + row < M.rows;
    cp_async_zfill<16>(shared + to + chunk_address<C::Width>(row, chunk), M.address(exists ? row0 + row : 0, col),
                       exists ? 16 : 0);
  }
}

/// Starts copying L and D of the tile, two numbers a query.
template <class C>
__device__ void load_LD(unsigned char* shared, int to, const Matrix<const float>& LD, int row0) {
  if (static_cast<int>(threadIdx.x) < C::Br / 2) {
    cp_async<16>(shared + to + 16 * threadIdx.x, LD.address(0, 2 * row0 + 4 * threadIdx.x));
  }
}

}  // namespace
}  // namespace flash::tensor_cores
