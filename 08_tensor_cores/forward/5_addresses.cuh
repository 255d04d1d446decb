// 08 Tensor cores, forward, step 5: addresses that differ by constants, or by an XOR.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c (m - m_new))  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (6.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 4, with the same tiles: fewer instructions around the products. Each takes an issue slot, and no registers are
// free for precomputed addresses (chapter 08, section 2).
// - An operand keeps a single offset, of its lane's chunk in block (0, 0). 16 rows down, the swizzle repeats, so the offset
//   grows by a constant; 16 columns on, some of its bits flip, because the swizzle is an XOR.
// - A copying thread keeps its column and moves down by a constant number of rows, a multiple of 8 if there are enough threads,
//   so that addresses differ by constants.
//
// Grid: Tr*B*H. Block: warps; a warp owns 16 ROW_FRAGMENTS rows of S and O; a row is shared by the 4 lanes of a quad.
// HBM: Q once, K and V once per tile of Q that sees them, O and L written once.  Workspace: padded copies if d % 8 != 0.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"
#include "08_tensor_cores/parts/launch.cuh"
#include "08_tensor_cores/parts/softmax.cuh"

namespace flash::tensor_cores::forward_5 {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowFragments, int Blocks>
struct ForwardShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROW_FRAGMENTS = RowFragments;                       // of 16 rows, per warp
  static constexpr int KEY_FRAGMENTS = Bc / 8, COL_FRAGMENTS = Width / 8;  // of 8 columns of S and of O
  static constexpr int THREADS = Br / (16 * ROW_FRAGMENTS) * WARP;
  static constexpr int BLOCKS = Blocks;                          // per SM (occupancy); they share its registers
  static constexpr int SHARED_ELEMENTS = Width * (Br + 4 * Bc);  // Q, and two tiles each of K and V
  static constexpr int MIN_SM = min_sm(2 * SHARED_ELEMENTS, ROW_FRAGMENTS == 2 && Width >= 64);

  static_assert(Br % (16 * ROW_FRAGMENTS) == 0 && Bc % 16 == 0 && Width % 32 == 0, "whole fragments");
};

/// A tile as an operand. load() loads a 16 x 16 block: block `outer` of a left operand's rows or a right operand's columns, and
/// block `inner` of the dimension that the product sums over. Trans: sums run down the columns of the tile, which ldmatrix
/// transposes.
template <class T_, int Width, bool Trans>
struct Operand {
  using T = T_;
  static constexpr int DEPTH = Width / 16;                   // of a left operand
  static constexpr int PERIOD = Width % 64 == 0 ? 128 : 64;  // bytes within which the swizzle permutes chunks
  SharedMatrix<T> elements;
  int offset;  // in bytes, of this lane's chunk in block (0, 0); kept apart: XOR on a 64-bit pointer costs ten registers

  __device__ void load(unsigned (&block)[4], int outer, int inner) const {
    // The block starts `rows` rows down and `bytes` bytes to the right. Whole periods of the swizzle are added. Within a period
    // the lane's chunk of block (0, 0) is 0 or 1, and the block is an even number of chunks on: their sum is their XOR, and XOR
    // commutes with the swizzle.
    // Example, Width 64, row 3: chunk 0 of block (0, 0) is in place 0 ^ 3 = 3, byte 3 * 128 + 48 = 432 of the tile. The next
    // block to the right begins with chunk 2, in place 2 ^ 3 = 1, byte 400 = 432 ^ 32: one XOR moves the lane's address.
    const int rows = 16 * (Trans ? inner : outer), bytes = 32 * (Trans ? outer : inner);
    const int within = bytes % PERIOD, periods = bytes - within;
    const T* const chunk = elements.at_byte((offset ^ within) + (periods + 2 * Width * rows));
    if constexpr (Trans) {
      ldmatrix_x4_trans(block, chunk);
    } else {
      ldmatrix_x4(block, chunk);
    }
  }
};

/// A tile [rows, Width] of T in shared memory, without padding: chunks of 8 elements are permuted within their row.
template <class T_, int Width>
struct Tile {
  using T = T_;
  SharedMatrix<T> elements;

  __device__ Tile(T* start, int rows) : elements{start, rows, Width, Width} {}
  __device__ T* end() const { return elements.data + elements.rows * Width; }
  __device__ Tile below(int row) const { return {elements.data + row * Width, elements.rows - row}; }  // row: a multiple of 8

  /// Neighbouring elements of a chunk, as one access.
  template <class Wide>
  __device__ decltype(auto) as(int row, int col) const {
    return elements.template as<Wide>(row, swizzled_col(Width, row, col));
  }
  __device__ T* chunk(int row, int col) const { return elements.address(row, swizzled_col(Width, row, col)); }

  // The lanes' chunks: the left one of rows 0..15, then the right one. For a right operand each 8 x 8 block is transposed.
  __device__ Operand<T, Width, false> left() const { return {elements, offset(lane() % 16, lane() / 16)}; }
  __device__ Operand<T, Width, true> right() const { return {elements, offset(lane() % 16, lane() / 16)}; }
  // Columns of the transpose are rows: the left and right chunks of rows 0..7, then of rows 8..15.
  __device__ Operand<T, Width, false> transposed() const {
    return {elements, offset(lane() / 16 * 8 + lane() % 8, lane() / 8 % 2)};
  }

 private:
  __device__ static int lane() { return threadIdx.x % WARP; }
  __device__ static int offset(int row, int chunk) { return 2 * Width * row + 16 * swizzled_chunk(Width, row, chunk); }
};

/// One thread's share of copying consecutive tiles of Height rows from a matrix to shared memory, one 16-byte chunk at a time.
/// The matrix's rows are 16-byte aligned; tiles get zeros beyond its last row and column.
template <class T, int Width, int Height, int Threads>
struct Copier {
  static constexpr int CHUNKS = Width / 8, FIT = Threads / CHUNKS;
  static constexpr int AT_ONCE = FIT >= 8 ? FIT / 8 * 8 : FIT;    // rows
  static constexpr bool SOME_IDLE = Threads != AT_ONCE * CHUNKS;  // Width 96: some threads have nothing to copy
  static_assert(Height % AT_ONCE == 0, "the last step is a whole one");
  Matrix<const T> from;  // from this thread's first row of the next tile on

  /// Starts at row0.
  __device__ Copier(const Matrix<const T>& M, int row0) : from(M.below(row0 + static_cast<int>(threadIdx.x) / CHUNKS)) {}

  /// Starts copying a tile, and moves on to the tile that begins `next` rows further down.
  __device__ void load_async(const Tile<T, Width>& tile, int next = 0) {
    const unsigned thread = opaque(threadIdx.x);  // recomputed in each call instead of kept in registers
    const int row0 = thread / CHUNKS, col = thread % CHUNKS * 8;
    if (SOME_IDLE && row0 >= AT_ONCE) return;
    const int from_col = col < from.cols ? col : 0, bytes = col < from.cols ? 16 : 0;
    Matrix<const T> rest = from;
    // `from` begins at this thread's first row of the tile, row0. Its last row of the tile is Height - AT_ONCE further down.
    const bool all_exist = from.rows > Height - AT_ONCE;
    if (all_exist) {
#pragma unroll
      for (int step = 0; step < Height; step += AT_ONCE, rest = rest.below(AT_ONCE)) {
        cp_async_zfill<16>(tile.chunk(row0 + step, col), rest.address(0, from_col), bytes);
      }
    } else {  // at the end of the matrix: a chunk that does not exist gets the address of the tile's first row, which does
#pragma unroll 1
      for (int row = row0; row < Height; row += AT_ONCE, rest = rest.below(AT_ONCE)) {
        const bool exists = rest.rows > 0;
        cp_async_zfill<16>(tile.chunk(row, col), (exists ? rest : from.below(-row0)).address(0, from_col), exists ? bytes : 0);
      }
    }
    // May point outside the matrix, past its last tile or before its first: undefined in standard C++, although never
    // dereferenced.
    from = from.below(next);
  }
};

/// Accumulators as left operand, rounded to T: in fragments n = 2 k and 2 k + 1 a lane holds exactly its elements of block k.
template <class T_, int RowFragments, int ColFragments>
struct Rounded {
  using T = T_;
  static constexpr int DEPTH = ColFragments / 2;
  const Accumulators<RowFragments, ColFragments>& P;

  __device__ void load(unsigned (&A)[4], int i, int k) const {
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) A[reg] = P.template pair<T>(i, 2 * k + reg / 2, reg % 2);
  }
};
template <class T, int RowFragments, int ColFragments>
__device__ Rounded<T, RowFragments, ColFragments> rounded(const Accumulators<RowFragments, ColFragments>& P) {
  return {P};
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::THREADS, Shape::BLOCKS)
    forward_kernel(ScoreRule rule, Tensor<const T> Q_all, Tensor<const T> K_all, Tensor<const T> V_all, Tensor<T> O_all,
                   Tensor<float> L_all) {
  if constexpr (Shape::MIN_SM > COMPILED_SM) return __trap();  // this architecture is too old: never launched
  const Problem& problem = rule.problem;
  const int Tr = (problem.Nq + Shape::Br - 1) / Shape::Br;
  const int query0 = blockIdx.x % Tr * Shape::Br;
  const int b = blockIdx.x / Tr / problem.H, h = blockIdx.x / Tr % problem.H;
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));

  const Tile<T, Shape::Width> Q_smem(dynamic_shared<T>(Shape::SHARED_ELEMENTS), Shape::Br);
  const auto K_smem = [&](int stage) {  // two tiles of K after Q, then two of V
    return Tile<T, Shape::Width>(Q_smem.end() + stage * Shape::Bc * Shape::Width, Shape::Bc);
  };
  const auto V_smem = [&](int stage) { return K_smem(2 + stage); };
  const int warp_row = threadIdx.x / WARP * 16 * Shape::ROW_FRAGMENTS;  // the warp's first row of the tile
  const auto Q_rows = Q_smem.below(warp_row);                           // the warp's rows

  const float scale_log2 = rule.late_scale * LOG2_E;  // c

  using Output = Accumulators<Shape::ROW_FRAGMENTS, Shape::COL_FRAGMENTS>;
  Output O(0.0f);                            // [16 ROW_FRAGMENTS, Width], not normalised
  Rows<Output::ROWS> m(-INFINITY), l(0.0f);  // l: over this lane's columns only
  // No row of the tile sees keys from key_end on.
  const int key_end = problem.visible_keys(min(query0 + Shape::Br, problem.Nq) - 1);
  const int visible_tiles = (key_end + Shape::Bc - 1) / Shape::Bc;

  Copier<T, Shape::Width, Shape::Bc, Shape::THREADS> copy_K(K, 0), copy_V(V, 0);
  const auto load_tile = [&](int j) {
    copy_K.load_async(K_smem(j % 2), Shape::Bc);
    copy_V.load_async(V_smem(j % 2), Shape::Bc);
  };

  // 1. Q and the first tiles of K and V, unless the tile sees no key: no barrier would then separate these writes from those of
  // O, which is staged in the buffer of Q.
  if (visible_tiles > 0) {
    Copier<T, Shape::Width, Shape::Br, Shape::THREADS>(Q_all.head(b, h), query0).load_async(Q_smem);
    load_tile(0);
  }

  for (int j = 0; j < visible_tiles; ++j) {
    // 2. K and V have landed; the prefetch of the next tiles starts.
    cp_async_wait_all();
    // Read after write: Q, K_j, V_j of all threads have landed.
    // Write after read: no warp still reads K_(j-1), V_(j-1).
    __syncthreads();
    if (j + 1 < visible_tiles) load_tile(j + 1);

    // 3. S = Q K^T, and the softmax of its rows.
    Accumulators<Shape::ROW_FRAGMENTS, Shape::KEY_FRAGMENTS> S(0.0f);  // [16 ROW_FRAGMENTS, Bc]
    add_product(S, Q_rows.left(), K_smem(j % 2).transposed());         // (8.1)
    rule.apply(S, b * problem.H + h, query0 + warp_row, j * Shape::Bc);
    const auto alpha = update_max(m, row_max(S), scale_log2);  // (6.2)
    exponentiate(S, m, scale_log2, rule.scale_first);          // (8.2)
    auto& P = S;                                               // in the same registers
    l = alpha * l + lane_sum(P);
    O.scale_rows(alpha);

    // 4. O += P V.
    add_product(O, rounded<T>(P), V_smem(j % 2).right());  // (6.4)
  }
  write_output(O, m, l, rule.late_scale, O_all.head(b, h), L_all.head_vector(b, h), query0 + warp_row, Q_rows);  // (8.5)
}

template <class Shape>
void start(const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const unsigned blocks = blocks_for(a.problem.Nq, Shape::Br) * static_cast<unsigned>(a.problem.B * a.problem.H);
    launch("tensor_addresses", {dim3(blocks), dim3(Shape::THREADS), Shape::SHARED_ELEMENTS * sizeof(T)},
           forward_kernel<T, Shape>, score_rule(a), pad_if_unaligned<T>(a, a.Q, "Q_padded"),
           pad_if_unaligned<T>(a, a.K, "K_padded"), pad_if_unaligned<T>(a, a.V, "V_padded"), view<T>(a.O), view<float>(a.L));
  });
}

template <int... Sizes>
constexpr CompiledShape compiled(const char* why) {
  return compiled_shape<ForwardShape<Sizes...>>(why, start<ForwardShape<Sizes...>>);
}

// Width, Br, Bc, row fragments per warp, blocks per SM.
constexpr CompiledShape shapes[] = {
    compiled<32, 128, 64, 2, 2>("32 rows a warp"),
    compiled<64, 128, 64, 2, 2>("32 rows a warp"),
    compiled<64, 64, 64, 1, 2>("twice as many blocks"),
    compiled<96, 128, 32, 2, 2>("32 rows a warp"),
    compiled<96, 64, 32, 1, 2>("little shared memory"),
    compiled<128, 128, 32, 2, 2>("32 rows a warp"),
    compiled<128, 64, 32, 1, 2>("little shared memory"),
    compiled<256, 64, 32, 1, 2>("16 rows a warp: more of O than that has no room"),
    compiled<256, 32, 16, 1, 2>("little shared memory"),
};

const Variant variant = forward_step<shapes>("addresses", "addresses that differ by constants");

}  // namespace
}  // namespace flash::tensor_cores::forward_5
